"""`wakeful`, with a rest of a second instead of a minute: threads and servers without work end sooner."""

from wakeful.cli import main
from wakeful.runners.prepare import warm_server
from wakeful.system import blocking_pool

if __name__ == "__main__":
    warm_server.IDLE_SECONDS = blocking_pool.IDLE_SECONDS = 1.0
    main()
