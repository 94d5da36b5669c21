"""Problems with verifiable answers: an instruction, a problem, and an answer in a box."""
