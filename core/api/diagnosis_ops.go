package api

import (
	"github.com/asrconfig/asrconfig-go/core/diagnosis"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/runlog"
)

type diagnosisArgs struct {
	RunLog runlog.Log    `json:"run_log"`
	Run    diagnosis.Run `json:"run"`
}

// diagnose says of a run log what held the training back, the gravest finding first. Errors: VersionMismatch.
func diagnose(a diagnosisArgs) ([]diagnosis.Finding, error) {
	if a.RunLog.Version != runlog.Version {
		return nil, fault.New(fault.VersionMismatch, "read it with the version of asrconfig-go that wrote it",
			"the run log is of version %d, this library reads version %d", a.RunLog.Version, runlog.Version)
	}
	return diagnosis.Of(&a.RunLog, a.Run), nil
}
