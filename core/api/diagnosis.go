package api

import (
	"github.com/asrconfig/asrconfig-go/core/diagnosis"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/story"
)

type diagnosisArgs struct {
	Story story.Story   `json:"story"`
	Run   diagnosis.Run `json:"run"`
}

func diagnose(a diagnosisArgs) (any, error) {
	if a.Story.Version != story.Version {
		return nil, fault.New(fault.VersionMismatch, "read it with the version of asrconfig-go that wrote it",
			"the story is of version %d, this library reads version %d", a.Story.Version, story.Version)
	}
	return diagnosis.Of(&a.Story, a.Run), nil
}
