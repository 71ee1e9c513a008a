"""What a client keeps for its data steward: acceptances, refusals, witnesses' answers, notices of waiting studies."""
