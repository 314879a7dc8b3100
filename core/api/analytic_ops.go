package api

import "github.com/asrconfig/asrconfig-go/core/model"

type nameArgs struct {
	Name string `json:"name"` // known name, forgiving in case, signs and prefix: see model.names
}

func modelConfig(a nameArgs) (any, error) { return model.Config(a.Name) }
