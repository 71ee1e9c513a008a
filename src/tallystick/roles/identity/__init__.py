"""Who a party is and whom it knows: the consortium file, role files, keys, certificates, enrolment."""
