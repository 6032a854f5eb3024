"""The shared code of the HR examples: it reads tables strictly, computes payslips, and writes results whole."""
