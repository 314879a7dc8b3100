package api

import (
	"github.com/asrconfig/asrconfig-go/core/report"
	"github.com/asrconfig/asrconfig-go/core/runlog"
)

type runLogArgs struct {
	RunLog runlog.Log `json:"run_log"`
}

// checkRunLog refuses a run log that does not hold together. Errors: Corrupt.
func checkRunLog(a runLogArgs) (struct{}, error) { return struct{}{}, a.RunLog.Check() }

type exportArgs struct {
	Sources []report.Source `json:"sources"`
	Format  string          `json:"format"` // csv, jsonl or chrome
}

// exportRun writes what the monitors of a run saw, for other programs. Behind the zero byte of the answer: the file's content, in UTF-8.
// Errors: Corrupt, InvalidArgument.
func exportRun(a exportArgs) (attachment[struct{}], error) {
	content, err := report.Export(a.Sources, a.Format)
	return attachment[struct{}]{size: len(content), write: func(to []byte) { copy(to, content) }}, err
}
