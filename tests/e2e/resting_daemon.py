"""`wakeful`, with a rest of a second instead of a minute: threads without work end sooner."""

from wakeful.cli import main
from wakeful.system import blocking_pool

if __name__ == "__main__":
    blocking_pool.IDLE_SECONDS = 1.0
    main()
