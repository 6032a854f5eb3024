"""One step of saving or loading a large session, in its own process. It prints its time and its peak memory."""

import asyncio
import os
import resource
import sys
import time
from pathlib import Path

from wakeful.bundles.load import load, verify_bundle
from wakeful.bundles.save import save
from wakeful.eventlog.contract import Append, Draft, EventLog
from wakeful.eventlog.sqlite import open_log
from wakeful.runners.process.procfs import peak_memory
from wakeful.system.blobs import Blobs

GROUP = 500
BODY = b'{"run":%d,"outcome":"succeeded","text":"the rates of the month changed, see inputs/rates.csv","output":{"head":"blake2b-%064x"}}'


async def fill(log: EventLog, records: int) -> None:
    calls = []
    for start in range(0, records, GROUP):
        drafts = tuple(
            Draft("run_finished", BODY % (seq, seq), "payroll", run=seq, parent="other:7")
            for seq in range(start, start + GROUP)
        )
        calls.append(log.append([Append("long", start, drafts)], at=start))
        if len(calls) == 20:
            await asyncio.gather(*calls)
            calls.clear()
    await asyncio.gather(*calls)


def main(step: str, folder: Path, records: int) -> None:
    bundle = folder / "bundle"
    log = open_log(folder / ("target" if step == "load" else "source"))
    blobs = Blobs(str(folder / "blobs"))
    begun = time.perf_counter()
    match step:
        case "fill":
            asyncio.run(fill(log, records))
        case "save":
            save(log, blobs, "long", bundle, name="long", cut_at=1)
        case "verify":
            assert verify_bundle(bundle).records == records
        case "load":
            load(log, blobs, bundle)
        case "audit":
            assert log.verify().is_sound
    seconds = time.perf_counter() - begun
    used = resource.getrusage(resource.RUSAGE_SELF)
    # Not ru_maxrss: a process that was made by vfork is charged with the peak of its parent.
    megabytes = peak_memory(os.getpid()) / (1 << 20)
    print(seconds, used.ru_utime + used.ru_stime, megabytes, log.head("long").hash.hex())
    log.close()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
