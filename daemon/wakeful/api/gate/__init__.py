"""The gate: identifies the caller of each request and checks what they may reach."""
