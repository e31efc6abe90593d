"""The catalogues of faults and checks: what each is called and means. Data, shared by all parts."""
