"""What minijit adds to a call: tracing is done, so it is finding the executable again.

pip install 'pjrt-hub[cpu]'
python examples/minijit/cost.py
"""

from timeit import repeat

import numpy as np
from minijit import jit

add = jit(lambda a, b: a + b)
a = add(np.ones(8, np.float32), np.ones(8, np.float32))
add(a, a)
executable = a.client.compile(add.stablehlo(a, a))
for name, function in {"the executable": executable, "through minijit": add}.items():
    seconds = min(repeat(lambda function=function: function(a, a), number=1000, repeat=30)) / 1000
    print(f"{name:15} {seconds * 1e6:5.1f} us a call")
