"""Run `wakeful` with idle threads that end after one second instead of a minute."""

from wakeful.cli import main
from wakeful.system import blocking_pool

if __name__ == "__main__":
    blocking_pool.IDLE_SECONDS = 1.0
    main()
