"""How many examples the laws are tried on.

The same ones each time, so that a failure can be seen again; HEEDMAP_EXAMPLES=5000 tries as many,
and others each time.
"""

import os

from hypothesis import HealthCheck, settings

settings.register_profile("same", deadline=None, derandomize=True, max_examples=50)
settings.register_profile(
    "many",
    deadline=None,
    max_examples=int(os.environ.get("HEEDMAP_EXAMPLES", "1000")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("many" if "HEEDMAP_EXAMPLES" in os.environ else "same")
