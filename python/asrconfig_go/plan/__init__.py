"""Plans: what is asked for, the records of a plan, the planner, and which clips it trains on."""
