package api

import "github.com/asrconfig/asrconfig-go/core/model"

type nameArgs struct {
	Name string `json:"name"` // known name, forgiving in case, signs and prefix: see model.names
}

// modelConfig gives the transformers config of a known model. Errors: NotFound.
func modelConfig(a nameArgs) (model.Published, error) { return model.Config(a.Name) }
