"""What the HR examples share: reading tables strictly, computing payslips, writing results whole."""
