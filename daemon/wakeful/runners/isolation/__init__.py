"""What a run may touch: told from its order (reach), and enforced by the kernel before its first instruction
(confine)."""
