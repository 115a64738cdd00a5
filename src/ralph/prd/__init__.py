"""`ralph prd`: the files of a PRD loop, and the plan made from them."""
