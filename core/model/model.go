// Package model computes the size of a speech model: from the counts of a module, by a name of the
// catalogue, whose modules were counted, or from the weights in a folder.
package model

import (
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// Request names the model by exactly one of Name, Folder and Counts.
type Request struct {
	Name   string  `json:"name"`   // known name, forgiving in case, signs and prefix: see Names
	Folder string  `json:"folder"` // holds config.json and *.safetensors
	Counts *Counts `json:"counts"` // a module, or a profile made by hand

	// FreezeFeatureEncoder counts the convolutional front end of a known model as frozen, as
	// model.freeze_feature_encoder() makes it.
	FreezeFeatureEncoder bool `json:"freeze_feature_encoder"`
}

// Profile measures the model. Errors: InvalidArgument (not exactly one source, counts out of range,
// no parameters), NotFound (unknown name, missing folder or file), Unsupported (a name that was not
// counted, a folder without weights), Corrupt (a weights file that breaks its format).
func Profile(r Request) (profile.Model, error) {
	sources := 0
	for _, set := range []bool{r.Name != "", r.Folder != "", r.Counts != nil} {
		if set {
			sources++
		}
	}
	switch {
	case sources != 1:
		return profile.Model{}, fault.New(fault.InvalidArgument,
			"give exactly one of name, folder and counts", "%d sources for the model", sources)
	case r.Counts != nil:
		return fromCounts(r)
	case r.Name != "":
		return fromName(r)
	}
	return fromFolder(r)
}
