/** The words of the lesson in English; `lesson_texts_zh.js` has the same keys. */

export const texts = {
  title: "Self-attention: who should I look at?",
  language: "Language",
  switch_theme: "Light / dark",
  restart: "↺ Reset",
  close: "Close",

  // Opening.
  one_sentence:
    "**Self-attention** lets every position of a sequence look at all positions, itself included, give each a weight, and mix what they have to say, by those weights, into new content of its own.",
  rhyme: "**Q** asks, and **K** replies; softmax shares the prize; **V** is what each one supplies.",

  contents: "Contents",
  six_steps: "Six steps with numbers",

  meeting: "Like a meeting in which everyone writes minutes",
  meeting_says:
    "Five people meet, and each must write minutes **of their own**. Before writing, each knows what to ask; each wears a badge that tells what they know about; each has something to say. The better a badge fits my question, the more I write down of what its wearer says.",
  meeting_mix:
    "Four tenths from her, three from him … ten tenths in all, and my own words count, too. All five write **at the same time**, nobody waits for anybody, and whoever sits at the far end of the table is as near as a neighbour.",
  meeting_person: "someone in the meeting",
  meeting_question: "their question",
  meeting_badge: "their badge",
  meeting_speech: "what they say",
  meeting_minutes: "their minutes",
  meeting_frame: "a frame of sound, or a word, or a stretch of film",
  meeting_output: "a new representation, in which all are mixed",
  symbol_x: "`X`",
  symbol_q: "`Q`",
  symbol_k: "`K`",
  symbol_v: "`V`",
  symbol_o: "`O`",

  formula: "The whole formula",
  formula_says:
    "Read: every question `Q` is multiplied with every badge `K`, which gives scores (`⊤` turns the rows of `K` into columns, so that one product holds all pairs); dividing by `√d` keeps them of one size (`d` is the number of columns of `Q`); softmax turns each row into weights that sum to 1; by these weights the contents `V` are added up. The six steps below do it with real numbers.",
  how_to_use:
    "How to use this page: point at any number (tap it on a phone; with the keyboard, Tab into a table and use the arrow keys), and the lower edge says how it came about. Tables marked ✎ can be edited, and all that follows changes along. The first numbers are those of ~torch.manual_seed(42)~: PyTorch gives you the very same.",

  meeting_picture: "Five people around a table; lines from {frame} to each, as wide as the weights",

  // The six steps.
  step_1: "X: five frames of sound, four numbers each",
  step_1_says:
    "The sound lasts 2 seconds and is cut into 5 **frames** of 0.4 seconds. In each frame four tones sound together, and four numbers, the **features** of the frame, say how strong each tone is: 0 is the middle, each 1 more doubles its strength (the amplitude), each 1 less halves it. This table of 5 rows and 4 columns is `X`.",
  play_all: "▶ Play all of it",
  play_frame: "Play {name}",
  measured_again: "Measured again from the sound, the numbers differ from X by at most {difference}.",
  honest_sound:
    "To be honest: with a real recording the sound comes first and the numbers are measured. Here it is the other way round: the random numbers of seed 42 come first, and the sound is made of them. Measuring it gives these numbers again.",
  editable: "✎ editable",
  grid_x: "X: a frame in each row, a tone in each column",
  grid_input: "X, as it enters attention",
  cell_name: "row {row}, column {column}",
  ask_strength: "The feature of some frame’s second tone is 2. How many times the middle strength is that?",
  why_strength: "Each 1 more doubles it: 2 × 2 = 4 times.",

  step_2: "Q, K, V: three roles of the same frame",
  step_2_says:
    "The four numbers of each frame are multiplied with three tables `W_Q`, `W_K` and `W_V`, which gives eight numbers each: `Q`, `K` and `V`, in books the **query**, the **key** and the **value**. These tables are what is **learned**: training changes them. Nothing has been trained here, so they hold random numbers.",
  role_q: "The question: what am I looking for",
  role_k: "The badge: by what others find me",
  role_v: "The content: what they take from me",
  grid_w: "the parameters W_{letter}",
  ask_roles: "When other frames come looking for me, what of mine is their question compared with?",
  roles_q: "my Q",
  roles_k: "my K",
  roles_v: "my V",
  why_roles: "Questions Q are compared with badges K; V is only what is taken afterwards.",

  step_3: "Q·Kᵀ: everyone scores everyone",
  step_3_says:
    "Take the `Q` of one frame and the `K` of another, multiply number by number and add up (the dot product): that is a **score**. The more the two rise and fall together, the higher it is. Every frame scores every frame: 5 × 5 = 25 scores. `Q` and `K` have a table each, so what I give you need not be what you give me: what frame 1 gives frame 2 (row 1, column 2) and what frame 2 gives frame 1 are 3.02 and 2.54 at first. Were `W_Q` and `W_K` one and the same table, the two would always be equal, and “whom do I seek” could not be told from “who seeks me”.",
  grid_scores: "Scores: rows ask, columns are looked at",
  which_head: "Head on show",
  ask_row: "The five scores in row 3 are …",
  row_given: "what frame 3 gives to each frame",
  row_received: "what each frame gives to frame 3",
  why_row: "Rows ask: in row 3, frame 3 looks around. What the others give it stands in column 3.",

  step_4: "÷ √d: keeping the scores in bounds",
  step_4_says:
    "Every score is a sum of `d` products; `d` is the number of columns of `Q` that a head has, 8 here, where there is one head. The larger `d`, the more scores swing: about as `√d`, not as `d`, since products of either sign partly cancel out. Dividing by `√d` just makes up for it. Without it, the softmax of the next step becomes sharp: before having learned whom to look at, a frame looks at hardly more than one, which makes training slow and unsteady (measured further below).",
  grid_scaled: "scores divided by √d",
  ask_scale: "Without the division by √d, the weights that softmax gives become …",
  scale_sharper: "sharper: gathered on few frames",
  scale_flatter: "flatter: all about the same",
  scale_same: "the same",
  why_scale: "The differences between scores grow, and differences are what softmax goes by. Turn it off at “Turn the knobs” below and see.",

  step_5: "softmax: from scores to weights",
  step_5_says:
    "Each score becomes a power of e, about 2.718 (so all are above 0, and high ones stand out), which is divided by the sum of its row. Each row then sums to **exactly 1**: it is the attention budget of a frame, and the scores decide how it is spent.",
  grid_weights: "Weights: rows ask, columns are looked at, each row sums to 1",
  ask_rest: "The weights of {frame} are {weights} + ? What must the last one be (two decimals)?",
  sum_of_first: "{sum} (the first {count} together)",
  why_rest: "A row sums to 1, so the last one is about {answer}.",

  step_6: "× V: mixing by weight",
  step_6_says:
    "At last each frame adds up the `V` of all five, by the weights in its row. There are eight numbers again, but no longer of this frame alone: each frame that it looked at is in them.",
  whole_says:
    "Mind that all five rows are computed at once, and that frame 1 reaches frame 5 in one step, just as it reaches frame 2. That is why it sees further than what reads step by step, and why it can do everything at the same time. What this is worth is measured below.",

  changed_scale: "not divided by √d now",
  changed_temperature: "the temperature is {temperature} now",
  changed_padding: "frame {frames} is padding, which nobody sees",
  changed_causal: "only itself and earlier ones can be seen now",

  // Where each number comes from.
  bar_name: "How this number came about",
  frame_name: "frame {frame}",
  why_x: "In frame {frame}, tone {tone} has 2 to the power of {value} = {times} times the middle strength.",
  why_w: "A parameter: by how much feature {feature} of `X` counts for number {dimension} of {letter}. Training changes it; you can, too.",
  why_input: "The feature of frame {frame}, and what says that it stands in place {place}.",
  why_q: "The four numbers of frame {frame} times column {dimension} of `W_Q`, added up.",
  why_k: "The four numbers of frame {frame} times column {dimension} of `W_K`, added up.",
  why_v: "The four numbers of frame {frame} times column {dimension} of `W_V`, added up.",
  why_score: "The question of frame {asks} times the badge of frame {answers}, number by number, added up.",
  why_scaled: "The score divided by √{width} = {root}.",
  why_not_scaled: "The knob is off: nothing is divided by √d.",
  why_weight:
    "The weight that frame {asks} gives to frame {answers}: e to the power of the score, divided by the sum of the row. (The row’s largest score is taken off all of them first; the quotient stays the same, and numbers stay small.)",
  why_padding: "Frame {answers} is padding, which softmax leaves out: its weight is exactly 0, and the others share the whole 1.",
  why_later: "Frame {answers} comes later, has not happened yet, and is left out of softmax: its weight is exactly 0.",
  why_nothing: "Frame {asks} can see nobody, so its row is 0.",
  why_output: "Number {dimension} of every frame’s `V`, added up by the weights of frame {frame}.",
  refused: "Please type a number from −10 to 10; the old one stays.",

  // Who should I look at?
  gaze: "Who should I look at?",
  gaze_about:
    "Choose a frame and follow its row: the wider an arc, the larger the weight. The bar below is its attention budget, 1 in all.",
  choose_frame: "Choose a frame",
  gaze_says:
    "Here **{frame}** looks most at **{best}**, with {share} %. Its attention is as spread as if shared evenly among {effective} of {size} frames.",
  gaze_nobody:
    "Here **{frame}** can look at nobody: no frame is there to be seen, so its row is all 0, and sums to 0.",
  itself: "itself",
  ask_most: "Which frame does {frame} look at most? (its number)",
  why_most: "Find the largest weight in its row; its column says which frame.",

  // Knobs.
  knobs: "Turn the knobs",
  knobs_say:
    "Whatever you turn, all six steps above and the weights here are computed again at once. Guess first what will happen, then do it.",
  knob_scale: "divide by √d",
  knob_temperature: "temperature τ",
  knob_scale_long:
    "Turn √d off and the weights become sharp. Temperature works in the same way: scores are divided by τ, too. Small τ is sharp, large τ flat, very large τ nearly a mean.",
  knob_padding: "valid frames",
  knob_padding_long:
    "Sounds of one batch differ in length; short ones are filled up with **padding**. Untick a frame and it becomes padding: the weights in its column are exactly 0 (not “small”), for softmax leaves it out: as if its scores were −∞, and e to the power of −∞ is 0. The rest still sums to 1. The row of the padding frame itself is computed all the same, only nobody uses its output.",
  knob_causal: "only itself and earlier ones (causal)",
  knob_causal_long:
    "A model that writes as it goes must not peek ahead: the upper right corner is all 0, in the same way as padding. Frame 1 sees only itself: that weight is 1, and its output is its own `V`.",
  knob_heads: "heads",
  knob_heads_long:
    "The eight numbers are split into groups, each scores and looks by itself, and the results are put side by side. One head may look at pitch, another at rhythm.",
  knob_shuffle: "Shuffle the frames",
  knob_unshuffle: "Back in order",
  knob_positions: "add positions",
  knob_shuffle_long:
    "Self-attention itself knows no order: shuffle the frames and the output only moves along, not a number changes. To know the order, positions must be added to `X`.",
  moved_along: "Shuffled, yet every frame’s output is what it was before, only in another row.",
  moved_else: "This time the output changed (by up to {difference}): order means something now.",
  knob_length: "length",
  knob_length_long:
    "Twice the frames, four times the weights: the price of self-attention. (From frame 6 on, the numbers are those of seed 43.)",
  length_says: "{frames} frames, {weights} weights",
  knob_sound: "sound",
  knob_sound_long:
    "Seed 42 gives two sounds. Of the second, the first 3 frames are valid, the last 2 padding. Changing it puts all other knobs back.",
  reading_largest: "largest weight of a row, on average",
  reading_spread: "as if shared evenly among, on average",
  reading_zeros: "weights that are exactly 0",
  ask_padding: "Make frame 4 padding. What weight do the other frames give it?",
  why_padding_answer: "Exactly 0: it is not “unimportant”, it is not in the room.",
  ask_shuffle: "Without positions, frames 2 and 4 change places. What happens to the output?",
  shuffle_new: "all numbers are new",
  shuffle_moves: "rows 2 and 4 change places, all numbers stay",
  shuffle_mean: "it becomes the mean of the five frames",
  why_shuffle: "Each frame sees the same people; who sits where is no matter. Press “Shuffle the frames” and see.",
  ask_length: "The sequence becomes 10 times as long. How many times as many weights are there?",
  why_length: "10 times the rows and 10 times the columns: 10 × 10 = 100.",

  question: "A small question",
  ask_nothing:
    "There is nothing to ask: {frame} can look at nobody, and its row is all 0. Under “Turn the knobs”, tick a frame that it can see.",
  check: "Check",
  verdict_right: "Right!",
  verdict_wrong: "Not quite.",
  verdict_none: "Give an answer first: a choice, or a bare number; a weight may be a percentage, such as 20 %.",

  // Real examples.
  examples: "What it is like in real models",
  examples_say:
    "The numbers above were never trained. Here are trained models (the last example needs none): see where the weights really fall. Such a model stacks many **layers** of self-attention, the output of one being the `X` of the next; each layer has several heads. Layers and heads are counted from 0.",
  needs_program:
    "Other sentences, recordings and films are computed by the program when you ask: with heedmap installed, run ~heedmap lesson~ and use the page that it opens.",
  working: "Getting ready … If a model must be fetched first, this can take minutes.",
  working_on: "At work: {doing}",
  no_answer: "heedmap does not answer. Is it still running?",
  whole_map: "The whole map, all layers and heads",
  map_gone:
    "This map has been closed. For a sentence, press “Look” again; for a recording or a film, reload the page and open it again.",
  list_comma: ", ",

  sentence: "A sentence: which words look at which",
  sentence_says:
    "Type a sentence and choose a word: the darker, the more it is looked at. The model first cuts a sentence into **tokens**, which may be a character, a word, or half a word; ▁ marks a blank or the beginning.",
  sentence_field: "A sentence",
  sentence_look: "Look",
  sentence_size: "Please type a sentence of 1 to {most} characters; this one has {size}.",
  tokens: "The tokens of the sentence",
  head_name: "{kind} (layer {layer}, head {head})",
  sentence_row: "In the head “{kind}”, “**{from}**” looks most at “**{to}**”, with {share} %.",
  sentence_kinds: "Over this sentence the model has {all} heads: {list}.",
  kind_count: "{kind} {count}",
  sentence_honest:
    "To be honest: a head named “repeated word” finds **the same characters** again, not whom a word refers to. In “The dog chased the other dog” it links the dogs although they are two. And most heads mainly look at marks such as ~<s>~ and ~</s>~: where there is nothing to look at, the budget must be spent somewhere (a “sink”).",

  voices: "A recording: two people who take turns",
  voices_says:
    "The encoder of the speech recogniser Whisper, a frame every 0.02 seconds. Choose a moment: which moments does it look at? The coloured bars show when each of the two speaks; what both say at once counts for both, so their shares can sum to more than 100 %.",
  voices_open: "Open the recording",
  voices_part: "speaker {name}",
  film: "A film: when a shot returns",
  film_says:
    "No ready film at hand has a shot that returns, so this one was cut: A B A C B A D. A and B come back, and go on where they stopped; no frame is there twice. There is no trained model here: the features of a frame are merely brightness and colour in parts of its picture, and they themselves are `Q`, `K` and `V` (as if `W_Q`, `W_K` and `W_V` changed nothing), so each frame looks at frames like itself. In the last piece of A, nearly all of the weight that goes far goes back to the A before. Then move to D, at the end: it was never there before, and yet most of its far weight goes to A, merely because light and colours are alike. Weights say “alike”, not “the same thing”.",
  film_open: "Open the film",
  film_part: "shot {name}",
  screen_now: "now",
  screen_looked_at: "the frame it looks at most in another piece",
  strip: "The weight that each moment gets; below, the parts",
  moment: "Choose a moment",
  no_part: "nobody speaks",
  moment_says: "At {seconds} s ({part}), {near} % of the weight goes to what is at most 1 second away. The rest is shared so:",
  share_of_weight: "weight",
  share_of_time: "time",

  // Measured.
  measured: "What would happen without it: measured",
  measured_says:
    "Claims want numbers. The task: one symbol of a sequence is marked, and at the end its name must be told; it lies D steps back. Four models compete: self-attention; LSTM and GRU, two **recurrent networks**, which read step by step; and a dilated CNN, whose layers see a few positions each, the further apart the higher the layer. They have {least} to {most} parameters each, and learn from {batches} batches.",
  measured_how:
    "With {seeds} seeds (bars are standard deviations), {threads} thread, in {seconds} seconds of processor time all together. For your machine: ~heedmap lesson measure -o FOLDER~.",
  numbers: "The numbers",
  part_far: "How far it sees",
  part_far_says:
    "Self-attention is one step from every position, so an answer is as easy to learn from anywhere. A recurrent network is D + 1 steps away, and the gradient, which tells training where to move the parameters, shrinks at each of them, until nothing is learned (longer training helps, but distance remains the limit). The CNN is fine within its field of view (30 steps); beyond, the gradient is 0: it cannot see, unless it gets more layers.",
  part_pace: "How fast it is",
  part_pace_says:
    "Self-attention can compute its T positions at once, the better the more cores there are; recurrence must go one after the other. But all pairs must be compared: four times as long takes self-attention about sixteen times, the others about four. On this one thread it is not slow while sequences are short; further on, the LSTM and the CNN are faster. That is a real price. (The GRU is slow by how it is made: on a CPU, PyTorch fuses the operations of an LSTM, and not those of a GRU.)",
  part_scale: "Without the division by √d",
  part_scale_says:
    "With random Q and K, weights get the sharper the larger d is, unless divided; divided, d does not matter. In training: without it, attention stares at some arbitrary position from the start, gradients are large and erratic, the loss falls more slowly, and seeds differ more. It can be learned all the same, only slowly and riskily.",
  chart_recall: "Share of right answers (dashed: guessing)",
  chart_reach: "Untrained: share of the whole gradient that goes to the input D steps back (below 10⁻⁹: at the lower edge)",
  chart_steps: "Operations, one after the other, that information goes through (LSTM and GRU alike: their lines lie on each other)",
  chart_learning: "Milliseconds to learn from one sequence (forward and back)",
  chart_reading: "Milliseconds to read one sequence (forward only)",
  chart_sharpness_by_width: "Largest weight of a row, random Q and K, 64 positions",
  chart_loss: "Loss in training (d = 64)",
  chart_gradient: "Size of the gradient of `W_Q` and `W_K` in training",
  chart_sharpness: "Largest weight of the last position in training",
  across_distance: "D: steps back",
  across_length: "T: length of the sequence",
  across_width: "d",
  across_batches: "batches learned from",
  series_attention: "self-attention",
  series_lstm: "LSTM",
  series_gru: "GRU",
  series_cnn: "dilated CNN",
  series_scaled: "divided by √d",
  series_unscaled: "not divided",

  // Beware.
  beware: "What weights do not say",
  beware_1:
    "A weight says how much was taken, not why. What is taken may be small, may cancel out, or may be changed by the layers behind.",
  beware_2:
    "A large weight between two words does not mean that the model understands how they belong together. “The same characters look at each other” and “it knows who he is” are two things.",
  beware_3:
    "The numbers here were never trained, so who looks at whom has no meaning: what you learn is the way of computing, not a finding.",

  code: "The same numbers in a few lines",
  code_says: "In a Python with heedmap, this prints the weights that this page begins with:",
  code_train:
    "Then train one for real: ~examples/frame_labels.py~, a file to be read from top to bottom, lets it learn where there is speech and where there is music, and draws what its heads look at before and after.",
  code_text: `import torch
from heedmap.nn import SelfAttention

torch.manual_seed(42)
x = torch.randn(2, 5, 4)
attend = SelfAttention(input_dim=4, attn_dim=8)
output, weights = attend(x)
print(weights[0])`,
};
