/** 课文的中文；各键与 `lesson_texts_en.js` 相同。 */

export const texts = {
  title: "自注意力：我该看谁？",
  language: "语言",
  switch_theme: "明 / 暗",
  restart: "↺ 还原",
  close: "关闭",

  // 开篇
  one_sentence:
    "**自注意力**让序列里的每个位置都去看所有的位置（也看自己），给每个位置定一个权重，再按权重把大家的内容混成自己的新内容。",
  rhyme: "拿 **Q** 去问，凭 **K** 来认；分数化权重，按重取 **V** 混。",

  contents: "目录",
  six_steps: "六步，步步有数",

  meeting: "好比一场人人都写纪要的会",
  meeting_says:
    "五个人开会，每个人都要写**自己的**一份纪要。动笔前，每个人先想好自己要问什么；每个人胸前有一张名牌，写着自己懂什么；每个人也各有要说的话。谁的名牌和我的提问越合，我就越多记谁的话。",
  meeting_mix:
    "比如这人的话占四成，那人占三成……加起来正好十成，自己的话也算在内。五份纪要**同时**写，谁也不用等谁；坐在桌子另一头的人，和邻座一样近。",
  meeting_person: "与会的人",
  meeting_question: "他的提问",
  meeting_badge: "他的名牌",
  meeting_speech: "他说的话",
  meeting_minutes: "他写的纪要",
  meeting_frame: "一帧声音，或一个词、一段画面",
  meeting_output: "混合了全场内容的新表示",
  symbol_x: "`X`",
  symbol_q: "`Q`",
  symbol_k: "`K`",
  symbol_v: "`V`",
  symbol_o: "`O`",

  formula: "整个公式",
  formula_says:
    "读法：提问 `Q` 和名牌 `K` 两两相乘得到分数（`⊤` 是把 `K` 行列互换，一次乘法就算完所有的对），除以 `√d` 稳住大小（`d` 是 `Q` 的列数），softmax 把每一行变成加起来为 1 的权重，最后按权重把内容 `V` 加在一起。下面六步，一步一步都有真的数。",
  how_to_use:
    "用法：把鼠标放到任何一个数上（手机上点一下；键盘用 Tab 进入表格，再按方向键），页面下方就写出它是怎么算出来的。带铅笔记号 ✎ 的表可以改，后面的数全都跟着变。开始时的数来自 ~torch.manual_seed(42)~，你在 PyTorch 里能得到一模一样的。",

  meeting_picture: "五个人围着桌子；从{frame}连到各人的线，粗细就是权重",

  // 六步
  step_1: "X：五帧声音，每帧四个数",
  step_1_says:
    "这段声音长 2 秒，切成 5 **帧**，每帧 0.4 秒。每帧里同时响着四个音，四个数（这一帧的**特征**）分别说四个音有多强：0 是中等，每加 1，强度（振幅）翻一倍；每减 1，减半。5 行 4 列的这张表就是 `X`。",
  play_all: "▶ 听整段",
  play_frame: "听{name}",
  measured_again: "从声音里重新量出的数，与 X 最大相差 {difference}。",
  honest_sound:
    "实话：真实的录音是先有声音，再量出数。这里反过来，先有种子 42 给的随机数，再照它们造出声音；量回去仍是这些数。",
  editable: "✎ 可改",
  grid_x: "X：每行一帧，每列一个音",
  grid_input: "进入注意力的 X",
  cell_name: "第 {row} 行第 {column} 列",
  ask_strength: "某帧的第二个音，特征是 2。它的强度是中等的几倍？",
  why_strength: "每加 1 翻一倍：2 × 2 = 4 倍。",

  step_2: "Q、K、V：同一帧的三种身份",
  step_2_says:
    "每帧的四个数分别乘三张表 `W_Q`、`W_K`、`W_V`，各得到八个数，就是 `Q`、`K`、`V`；书上通常叫**查询**（query）、**键**（key）、**值**（value）。三张表是**学**出来的：训练就是改它们。这里还没训练，里面是随机数。",
  role_q: "提问：我想找什么",
  role_k: "名牌：别人凭什么找到我",
  role_v: "内容：找到我的人能拿走什么",
  grid_w: "参数 W_{letter}",
  ask_roles: "别的帧来找我时，拿它们的提问和我的哪一样相比？",
  roles_q: "我的 Q",
  roles_k: "我的 K",
  roles_v: "我的 V",
  why_roles: "提问 Q 和名牌 K 相比；相合之后取走的才是 V。",

  step_3: "Q·Kᵀ：两两打分",
  step_3_says:
    "拿一帧的 `Q` 和另一帧的 `K`，对应的数相乘再加起来（点积），就是一个**分数**。两串数越是同大同小、同正同负，分数越高。每帧给每帧打分：5 × 5 = 25 个分数。`Q` 和 `K` 各有一张表，所以我给你的分，不必等于你给我的：第 1 帧给第 2 帧的（第 1 行第 2 列），和第 2 帧给第 1 帧的，起初是 3.02 和 2.54。若 `W_Q` 和 `W_K` 是同一张表，两者必然相等，“我找谁”和“谁找我”就分不开了。",
  grid_scores: "分数：行是提问的帧，列是被看的帧",
  which_head: "看第几个头",
  ask_row: "第 3 行的五个分数是……",
  row_given: "第 3 帧给各帧打的分",
  row_received: "各帧给第 3 帧打的分",
  why_row: "行是提问的一方：第 3 行是第 3 帧在打量大家。别人给它的分数在第 3 列。",

  step_4: "÷ √d：把分数稳住",
  step_4_says:
    "每个分数是 `d` 个乘积之和；`d` 是一个头里 `Q` 的列数，这里只有一个头，是 8。`d` 越大，分数的起伏越大；乘积有正有负，会抵掉一部分，所以大约只按 `√d` 增长，不按 `d`。除以 `√d` 正好抵消。不除会怎样？下一步的 softmax 会变尖：还没学会该看谁，就已经几乎只看一个位置，训练因此又慢又不稳（后面有实测）。",
  grid_scaled: "除以 √d 之后的分数",
  ask_scale: "不除以 √d，softmax 得到的权重会……",
  scale_sharper: "更尖：集中到少数几帧",
  scale_flatter: "更平：大家差不多",
  scale_same: "不变",
  why_scale: "分数的差距变大，而 softmax 看的是差距。到下面“拧一拧旋钮”里关掉它，就能看见。",

  step_5: "softmax：分数变成权重",
  step_5_says:
    "拿每个分数作指数，求 e（约 2.718）的幂：于是都大于 0，高分更突出，再除以这一行的总和。结果每行加起来**正好是 1**：这一行就是这一帧的注意力预算，怎么分由分数定。",
  grid_weights: "权重：行是提问的帧，列是被看的帧，每行和为 1",
  ask_rest: "{frame}的权重依次是 {weights} + ？最后一个应是多少（两位小数）？",
  sum_of_first: "{sum}（前 {count} 个之和）",
  why_rest: "一行的和是 1，所以最后一个约为 {answer}。",

  step_6: "× V：按权重混合",
  step_6_says:
    "最后，每帧按自己那一行权重，把五帧的 `V` 加在一起。得到的还是八个数，但已不只是它自己：里面混进了它所看的每一帧。",
  whole_says:
    "注意：五行是同时算出来的，第 1 帧到第 5 帧只用一步，和到第 2 帧一样。所以它比“一步一步读”的方法看得远，而且各处可以同时算。究竟值多少，后面有实测。",

  changed_scale: "现在没有除以 √d",
  changed_temperature: "现在温度是 {temperature}",
  changed_padding: "第 {frames} 帧是填充，没人看得见",
  changed_causal: "现在只能看自己和前面",

  // 每个数的来历
  bar_name: "这个数是怎么来的",
  frame_name: "第 {frame} 帧",
  why_x: "第 {frame} 帧里，第 {tone} 个音的强度是中等的 2 的 {value} 次方，即 {times} 倍。",
  why_w: "参数：`X` 的第 {feature} 个数，以多大比重进入 {letter} 的第 {dimension} 个数。训练会改它；你也可以。",
  why_input: "第 {frame} 帧的特征，加上说明它站在第 {place} 位的数。",
  why_q: "第 {frame} 帧的四个数，乘 `W_Q` 的第 {dimension} 列，再相加。",
  why_k: "第 {frame} 帧的四个数，乘 `W_K` 的第 {dimension} 列，再相加。",
  why_v: "第 {frame} 帧的四个数，乘 `W_V` 的第 {dimension} 列，再相加。",
  why_score: "第 {asks} 帧的提问，和第 {answers} 帧的名牌，对应相乘再相加。",
  why_scaled: "分数除以 √{width} = {root}。",
  why_not_scaled: "旋钮关着：没有除以 √d。",
  why_weight:
    "第 {asks} 帧给第 {answers} 帧的权重：拿分数作指数求 e 的幂，再除以整行的和。（分数先都减去本行最大的，商不变，数不会太大。）",
  why_padding: "第 {answers} 帧是填充，不进 softmax：权重恰好是 0，别的帧照样分完整个 1。",
  why_later: "第 {answers} 帧在后面，还没发生，不进 softmax：权重恰好是 0。",
  why_nothing: "第 {asks} 帧谁也看不见，所以整行是 0。",
  why_output: "按第 {frame} 帧的权重，把各帧 `V` 的第 {dimension} 个数加在一起。",
  refused: "请输入 −10 到 10 之间的数；原来的数没有变。",

  // 我该看谁
  gaze: "我该看谁？",
  gaze_about: "选一帧，顺着它那一行看：弧线越粗，权重越大；下面的长条是它的注意力预算，总长是 1。",
  choose_frame: "选一帧",
  gaze_says: "**{frame}**最看重**{best}**，占 {share} %。它的注意力分散得像均分给 {effective} 帧（共 {size} 帧）。",
  gaze_nobody: "**{frame}**谁也看不见：没有一帧可看，它这一行全是 0，加起来也是 0。",
  itself: "自己",
  ask_most: "{frame}最看重第几帧？",
  why_most: "在它那一行里找最大的权重，再看那一列是第几帧。",

  // 旋钮
  knobs: "拧一拧旋钮",
  knobs_say: "每拧一个，上面六步的数和这里的权重都立刻重算。先猜会怎样，再动手。",
  knob_scale: "除以 √d",
  knob_temperature: "温度 τ",
  knob_scale_long:
    "关掉 √d，权重变尖。温度的作用和它一样：分数还要除以 τ，τ 小则尖，τ 大则平，很大时近乎平均。",
  knob_padding: "有效的帧",
  knob_padding_long:
    "一批声音长短不一，短的用**填充**补齐。取消勾选一帧，它就成了填充：它那一列的权重恰好是 0（不是“很小”），因为它不进 softmax：等于把分数换成 −∞，而 e 的 −∞ 次方就是 0。其余的照样加成 1。填充帧自己那一行照样算出来，只是没有人用它的输出。",
  knob_causal: "只看自己和前面（因果）",
  knob_causal_long: "边说边写的模型不能偷看后面：右上角全是 0，办法和填充一样。第 1 帧只能看自己：权重是 1，输出就是它自己的 `V`。",
  knob_heads: "几个头",
  knob_heads_long: "把八个数分成几组，每组各打各的分、各看各的，最后拼在一起。一个头看音高，另一个头可以看节奏。",
  knob_shuffle: "打乱各帧",
  knob_unshuffle: "排回原序",
  knob_positions: "加上位置",
  knob_shuffle_long:
    "自注意力本身不知道先后：打乱帧，输出只是跟着换位置，一个数也不变。要让它知道次序，得给 `X` 加上位置的数。",
  moved_along: "打乱了，但每帧的输出和打乱前一模一样，只是换了行。",
  moved_else: "这回输出变了（最多相差 {difference}）：次序有了意义。",
  knob_length: "多长",
  knob_length_long: "帧数翻倍，权重的个数变四倍。这是自注意力的代价。（第 6 帧起的数取自种子 43。）",
  length_says: "{frames} 帧，{weights} 个权重",
  knob_sound: "第几段声音",
  knob_sound_long: "种子 42 一次给了两段。第二段只有前 3 帧有效，后 2 帧是填充。换段会恢复其余旋钮。",
  reading_largest: "每行最大的权重，平均",
  reading_spread: "平均像是均分给几帧",
  reading_zeros: "恰好为 0 的权重",
  ask_padding: "把第 4 帧变成填充。别的帧给它的权重是多少？",
  why_padding_answer: "恰好 0：它不是“不重要”，而是根本不在会场。",
  ask_shuffle: "没有位置信息时，把第 2 帧和第 4 帧对调，输出会怎样？",
  shuffle_new: "全都变成新的数",
  shuffle_moves: "第 2 行和第 4 行对调，数都不变",
  shuffle_mean: "变成五帧的平均",
  why_shuffle: "每帧看到的还是同一群人，座次无关。按“打乱各帧”看看。",
  ask_length: "序列变成原来的 10 倍长，权重的个数变成几倍？",
  why_length: "行和列各 10 倍：10 × 10 = 100 倍。",

  question: "小问题",
  ask_nothing: "{frame}现在谁也看不见，整行是 0，没什么可问。到“拧一拧旋钮”里勾选一帧它看得见的，再来答。",
  check: "对一对",
  verdict_right: "对！",
  verdict_wrong: "再想想。",
  verdict_none: "先给个答案：选一项，或填一个数，不带单位；问权重的，写成百分数（如 20 %）也行。",

  // 真实的例子
  examples: "真的模型里是什么样",
  examples_say: "上面的数没有训练过。下面是训练好的模型（最后一例不用模型），看看权重真的落在哪里。这样的模型把自注意力叠成许多**层**，前一层的输出是后一层的 `X`；每层有好几个头。层和头都从 0 数起。",
  needs_program: "换一句话、打开录音或影片，都要靠程序当场去算：装好 heedmap 后运行 ~heedmap lesson~，在它打开的页面里就能用。",
  working: "正在准备……第一次若要下载模型，可能得几分钟。",
  working_on: "正在进行：{doing}",
  no_answer: "heedmap 没有回应。它还在运行吗？",
  whole_map: "展开所有层、所有头的全图",
  map_gone: "这张全图已经关闭，打不开了。若是一句话，请再点一次“看一看”；若是录音或影片，请刷新页面，重新打开。",
  list_comma: "，",

  sentence: "一句话：哪个词看哪个词",
  sentence_says: "输入一句话，点一个词：颜色越深，它看得越多。模型先把句子切成**词元**，一个词元可以是一个字、一个词，也可以半个词；▁ 是空格或开头的记号。",
  sentence_field: "一句话",
  sentence_look: "看一看",
  sentence_size: "请输入 1 到 {most} 个字符的一句话；现在是 {size} 个。",
  tokens: "句子的词元",
  head_name: "{kind}（{layer} 层 {head} 头）",
  sentence_row: "在“{kind}”这个头里，“**{from}**”最看重“**{to}**”，{share} %。",
  sentence_kinds: "这个模型对这句话共有 {all} 个头：{list}。",
  kind_count: "{kind} {count} 个",
  sentence_honest:
    "实话：“重复的词”这个头找的是**同样的字**，不是“他指的是谁”。在“他说他今天不能来”里，第二个“他”看“他说”，两处都有“他”。第 0 层 2 号头里这个权重更高（0.896），但那是个“前一个词元”头，而“他说”正好在前面。大多数头主要看 ~<s>~、~</s>~ 这样的记号：没什么可看时，预算总得花在某处（所谓“汇点”）。",

  voices: "一段录音：两个人轮流说话",
  voices_says: "语音识别模型 Whisper 的编码器，每 0.02 秒一帧。选一个时刻：它在看哪些时刻？下面的色条是两个人各自说话的时间；两人同时说话的时刻，两边都算，所以两份加起来可以超过 100 %。",
  voices_open: "打开录音",
  voices_part: "说话人 {name}",
  film: "一段影片：镜头又回来了",
  film_says: "现成的影片里没有重现的镜头，所以这一段是剪出来的：A B A C B A D。A 和 B 都会回来，而且是接着往下拍的，没有一帧重复。这里没有训练过的模型：每帧的特征只是画面各处的亮度和颜色，`Q`、`K`、`V` 都直接用它（等于 `W_Q`、`W_K`、`W_V` 什么也不改），所以每帧看的是和自己相像的帧。在最后一段 A 里，远处的权重几乎全回到前面的 A。再拖到结尾的 D：它才第一次出现，远处的权重却也大多给了 A，只因明暗和色调相近。权重说的是“像”，不是“同一样东西”。",
  film_open: "打开影片",
  film_part: "镜头 {name}",
  screen_now: "现在",
  screen_looked_at: "它在别的片段里最看重的一帧",
  strip: "每个时刻得到的权重；下面是各段",
  moment: "选一个时刻",
  no_part: "没有人说话",
  moment_says: "在 {seconds} 秒（{part}）：{near} % 的权重给了 1 秒之内的近处。其余的，这样分：",
  share_of_weight: "权重",
  share_of_time: "时长",

  // 测一测
  measured: "没有它会怎样：测一测",
  measured_says:
    "空口无凭，用数字说话。任务：一串符号里有一个带记号，离末尾 D 步；读完之后，要说出它是什么。比的是四个模型：自注意力；LSTM 和 GRU，两种**循环网络**，从头一步一步读；空洞卷积，每层只看近旁几个位置，越高的层隔得越开。它们各有 {least} 到 {most} 个参数，都学 {batches} 批。",
  measured_how:
    "共 {seeds} 个随机种子，竖线是标准差，{threads} 个线程，共用处理器时间 {seconds} 秒。你的机器上的结果：~heedmap lesson measure -o 文件夹~。",
  numbers: "看数字",
  part_far: "看得远不远",
  part_far_says:
    "自注意力到任何位置都只隔一步，所以答案多远都一样好学。循环网络隔 D + 1 步，传回来的梯度（训练靠它知道参数该往哪边改）每步缩小一截，远了就学不动（学得更久会好些，但仍受距离所限）。卷积在视野（30 步）之内很好，再远就是 0：它根本看不见，只能再加层。",
  part_pace: "快不快",
  part_pace_says:
    "自注意力的 T 个位置可以同时算，核越多越占便宜；循环只能一个接一个。但两两都要比：序列长 4 倍，自注意力的时间约为 16 倍，别的约 4 倍。在这一个线程上，短序列时它不慢；再长，LSTM 和卷积就更快了。这是真实的代价。（GRU 慢在实现：PyTorch 在 CPU 上替 LSTM 把运算并在一起做，GRU 没有。）",
  part_scale: "不除以 √d 会怎样",
  part_scale_says:
    "Q、K 随机时，不除以 √d，d 越大权重就越尖；除了，就与 d 无关。再看训练：不除的，一开始就死盯某个碰巧的位置，梯度大而乱，损失降得慢，几个种子之间差别也大。它并非学不会，只是走得又慢又险。",
  chart_recall: "答对的比例（虚线：瞎猜）",
  chart_reach: "未训练时，全部梯度有多大一份落在 D 步之前的输入上（小于 10⁻⁹ 的画在底边）",
  chart_steps: "信息要经过几次先后的运算（LSTM 和 GRU 相同，两线重合）",
  chart_learning: "学一遍（前向加反向）的毫秒数",
  chart_reading: "读一遍（只前向）的毫秒数",
  chart_sharpness_by_width: "每行最大的权重，随机的 Q、K，64 个位置",
  chart_loss: "训练中的损失（d = 64）",
  chart_gradient: "训练中 `W_Q`、`W_K` 的梯度大小",
  chart_sharpness: "训练中最后位置的最大权重",
  across_distance: "D：相隔几步",
  across_length: "T：序列长度",
  across_width: "d",
  across_batches: "学了几批",
  series_attention: "自注意力",
  series_lstm: "LSTM",
  series_gru: "GRU",
  series_cnn: "空洞卷积",
  series_scaled: "除以 √d",
  series_unscaled: "不除",

  // 提醒
  beware: "权重不能说明什么",
  beware_1: "权重说的是“取了多少”，不是“为什么”。取得多的内容也可能很小、互相抵消，或在后面的层里被改写。",
  beware_2: "两个词之间权重大，不等于模型懂得它们的关系。“相同的字互相看”和“知道他指的是谁”是两回事。",
  beware_3: "这里的数没有训练过，所以谁看谁没有含义；学到的是算法，不是结论。",

  code: "同样的数，几行代码",
  code_says: "在装有 heedmap 的 Python 里运行，得到的就是本页最初的权重：",
  code_train:
    "接下来可以真的训练一个：~examples/frame_labels.py~，一个从头读到尾的文件，让它学会听出哪里有人说话、哪里有音乐，并画出训练前后各个头在看什么。",
  code_text: `import torch
from heedmap.nn import SelfAttention

torch.manual_seed(42)
x = torch.randn(2, 5, 4)
attend = SelfAttention(input_dim=4, attn_dim=8)
output, weights = attend(x)
print(weights[0])`,
};
