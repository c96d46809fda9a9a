"""Forks at any moment, while other threads use the package: no child hangs."""

import os
import subprocess
import sys
from pathlib import Path

from toy import Rounds, Tally

FORKS = """
import os, random, signal, sys, threading, time, warnings
import pjrt_hub
from pjrt_hub import errors
warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12's, of forks beside threads
client = pjrt_hub.client("cpu", offline=True)
add = ("func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {"
       " %0 = stablehlo.add %a, %a : tensor<8xf32>\\n return %0 : tensor<8xf32> }")
exe = client.compile(add)

def use_a_client():
    with pjrt_hub.client("cpu", offline=True) as own:
        own.compile(add)(own.buffer_from_host([1.0] * 8)).tolist()
        own.devices, own.memories, own.topology

def refuse():
    try:
        exe(None)
    except errors.ClosedError:
        return
    raise AssertionError("an object of the parent is used")

def repeat(work):
    while not done:
        work()

done = False
using = [pjrt_hub.plugins, pjrt_hub.plugins, use_a_client, pjrt_hub.plugins]
for work in using: work()
threads = [threading.Thread(target=repeat, args=[work]) for work in using]
for thread in threads: thread.start()
draw, ends = random.Random(int(sys.argv[2])), {}
for _ in range(int(sys.argv[1])):
    time.sleep(draw.uniform(0, 0.02))
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)
        try:
            refuse()
            found = [each.name for each in pjrt_hub.plugins()]
            os._exit(0 if "cpu" in str(found) else 1)
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(2)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    ends[status] = ends.get(status, 0) + 1
done = True
for thread in threads: thread.join()
print(ends)
"""


def test_no_child_hangs(tmp_path: Path, tally: Tally, rounds: Rounds) -> None:
    forks = rounds(40, 1000)
    env = {name: value for name, value in os.environ.items() if not name.startswith("PJRT_")}
    env["PJRT_HUB_CACHE"] = str(tmp_path)
    command = [sys.executable, "-c", FORKS, str(forks), "17"]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    tally(f"forks beside threads that find plugins and use clients: {forks}, ended {done.stdout}")
    assert (done.stdout, done.stderr) == (f"{{0: {forks}}}\n", "")
