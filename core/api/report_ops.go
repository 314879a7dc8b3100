package api

import "github.com/asrconfig/asrconfig-go/core/runlog"

type runLogArgs struct {
	RunLog runlog.Log `json:"run_log"`
}

// checkRunLog refuses a run log that does not hold together. Errors: Corrupt.
func checkRunLog(a runLogArgs) (struct{}, error) { return struct{}{}, a.RunLog.Check() }
