"""One run from its order to its report, and the runner that carries out all of them."""
