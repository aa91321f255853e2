-- Run once, when the data volume is empty: Optuna's tables have a database of their own, which is
-- rebuilt from ours wherever it is lost.
CREATE DATABASE optuna;
