"""A float64 NumPy model of the GGUF architecture `qwen35`: the readable oracle.

`model.py` is the forward pass, `layers.py` its parts, `gguf_file.py` the file format, `rounding.py`
the engine's roundings (int8 activations, stored keys and values), `random_model.py` writes
random-weight files of any shape of the family. `peer.py` asks llama.cpp. Nothing here imports the
package under test.
"""

from tests.reference.model import Config, ReferenceModel, State
from tests.reference.rounding import Rounding

__all__ = ["Config", "ReferenceModel", "Rounding", "State"]
