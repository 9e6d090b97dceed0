"""A recording: the layers of a `heedmap.Seen` in a folder, to be looked into later or elsewhere.

::

    manifest.json        what each layer is: names, masks, scales, sizes and hashes of the files
    0000.safetensors     query, key and whatever else the weights of layer 0 are made of
    0001.safetensors     …

Of a layer that several ranks share (see `heedmap.parallel`) there is a file for each rank, with its
queries and keys: ``0000-0000.safetensors``, ``0000-0001.safetensors`` …; which they are stands in
the manifest.

`heedmap.Seen.save` writes one, `heedmap.open` opens one. `manifest` says what stands in the
manifest, `files` how tensors lie in a file, `maps` and `masks` what weights and masks consist of,
`shards` how the files of ranks are joined.

The manifest is a JSON object: ``schema``, a number that grows with every change that older versions
could not read; ``recording``, the content; and the ``sha256`` of the content as
``json.dumps(content, sort_keys=True, separators=(",", ":"))`` writes it. Nothing in a recording is
ever run: there is no pickle in it, and file names cannot lead out of the folder.
"""

from heedmap.recording.opening import Recording, open
from heedmap.recording.saving import check_free, save

__all__ = ["Recording", "check_free", "open", "save"]
