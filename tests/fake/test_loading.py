"""A library that takes long to load: what goes on meanwhile, and Ctrl-C."""

from __future__ import annotations


def test_the_main_thread_has_other_work_while_a_library_loads(stub, check) -> None:
    check(
        stub("ON_LOAD=usleep(300000)"),
        """
        from pjrt_hub.running.capi import library
        steps = []
        api = library.load(
            path, steps.append, meanwhile=lambda: steps.append("meanwhile")
        )
        assert steps[:3] == ["dlopen", "meanwhile", "GetPjrtApi"], steps
        assert library.load(path, steps.append) is api
        assert len(steps) == 5, steps
        """,
    )


def test_an_interrupt_ends_the_waiting_and_the_library_is_still_looked_at(stub, check) -> None:
    check(
        stub("ON_LOAD=usleep(1500000)"),
        """
        import _thread, os, signal, threading, time
        from pjrt_hub import errors
        from pjrt_hub.running.capi import library

        looked = threading.Event()
        def tell(step):
            if step == "GetPjrtApi":
                looked.set()
                raise errors.PluginLoadError("it was changed", path=path)

        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        begun = time.monotonic()
        try:
            library.load(path, tell)
        except KeyboardInterrupt:
            assert time.monotonic() - begun < 1.2
        else:
            raise AssertionError("not interrupted")
        assert not looked.is_set()
        assert looked.wait(30)
        assert library.load(path).version.minor == 117
        """,
    )


def test_an_interrupted_process_ends_in_order_while_a_library_loads(stub, run) -> None:
    ended = run(
        stub("ON_LOAD=usleep(700000)"),
        """
        import os, signal, threading
        from pjrt_hub.running.capi import library
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            library.load(path)
        except KeyboardInterrupt:
            print("ok")
        """,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "ok\n", "")
