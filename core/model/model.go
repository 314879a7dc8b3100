// Package model computes the size of a speech model: from the counts of a module, by a name of the
// catalogue, whose modules were counted, or from the weights in a folder.
package model

import (
	"cmp"
	"slices"

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
			"pass exactly one of name, folder and counts", "%d sources for the model", sources)
	case r.Counts != nil && r.FreezeFeatureEncoder:
		return profile.Model{}, fault.New(fault.InvalidArgument,
			"count the module after freezing it, and leave it out",
			"freeze_feature_encoder does not apply to a counted module")
	case r.Counts != nil:
		return fromCounts(*r.Counts)
	case r.Name != "":
		return fromName(r)
	}
	return fromFolder(r)
}

// Counts is a live module as Python counted it, or a profile made by hand. Each parameter counts
// once, however often it is shared. An absent value takes its default.
type Counts struct {
	Total int64 `json:"total"` // elements, 1..2^50
	// elements with requires_grad, 1..total; total
	Trainable *int64 `json:"trainable"`
	// storage of all parameters; 4 B x total
	ParameterBytes *int64 `json:"parameter_bytes"`
	// storage of all gradients; 4 B x trainable
	GradientBytes *int64 `json:"gradient_bytes"`
	// see optimizerBytes; 4/7 B x trainable
	AdafactorStateBytes *int64 `json:"adafactor_state_bytes"`
	// of the module; "" for a profile made by hand
	ClassName    string `json:"class_name"`
	Architecture string `json:"architecture"` // model_type; "custom"
	HiddenSize   *int   `json:"hidden_size"`
	Layers       *int   `json:"layers"`
	Name         string `json:"name"`
	// "module", "manual" or another of profile.Model's; "manual"
	Source string `json:"source"`
}

const (
	float32Bytes = 4
	// of a whole model, so that its bytes in any precision stay exact in an int64 and in a JSON
	// number
	maxElements = 1 << 50
	maxSize     = 1 << 20 // of one dimension: over four times the largest speech vocabulary
)

// optimizerBytes is each optimizer's state:
//   - adamw: two moments in the type of the parameters, which their gradients have, too;
//   - adamw_8bit: two moments of one byte; without the block scales (8 B per 256 elements) and
//     without the tensors under 4096 elements that bitsandbytes keeps in float32, together under
//     3 % more in the catalogue's models;
//   - adafactor: a float32 mean per row and column of every tensor with two or more dimensions,
//     vectors whole (transformers.optimization.Adafactor without first moment; its one scalar per
//     tensor is left out);
//   - sgd: none without momentum.
func optimizerBytes(trainable, gradients, adafactor int64) map[string]int64 {
	return map[string]int64{"adamw": 2 * gradients, "adamw_8bit": 2 * trainable,
		"adafactor": adafactor, "sgd": 0}
}

// guessedAdafactor stands in where shapes are unknown: a seventh of what an unfactored moment
// takes. It errs on the safe side: conformers come to 13 %, because convolutions of kernel 1 hardly
// factor, all other known models to under 3 %.
func guessedAdafactor(trainable int64) int64 { return float32Bytes * trainable / 7 }

func fromCounts(c Counts) (profile.Model, error) {
	trainable := profile.Or(c.Trainable, c.Total)
	if err := c.check(trainable); err != nil {
		return profile.Model{}, err
	}
	gradients := profile.Or(c.GradientBytes, float32Bytes*trainable)
	return profile.Model{
		Name: c.Name, Architecture: cmp.Or(c.Architecture, "custom"), ClassName: c.ClassName,
		TotalParameters: c.Total, TrainableParameters: trainable,
		HiddenSize: c.HiddenSize, Layers: c.Layers,
		ParameterBytes: profile.Or(c.ParameterBytes, float32Bytes*c.Total),
		GradientBytes:  gradients,
		OptimizerBytes: optimizerBytes(trainable, gradients,
			profile.Or(c.AdafactorStateBytes, guessedAdafactor(trainable))),
		Source: cmp.Or(c.Source, "manual"),
	}, nil
}

var sources = []string{"", "module", "config", "folder", "catalogue", "manual"}

func (c Counts) check(trainable int64) error {
	switch {
	case !slices.Contains(sources, c.Source):
		return fault.New(fault.InvalidArgument, "leave it out, or pass module or manual",
			"source is %q", fault.Shorten(c.Source))
	case c.Total == 0:
		return fault.New(fault.InvalidArgument,
			"pass the module that is trained, after it was built (lazy modules have no "+
				"parameters before their first input)",
			"the model has no parameters")
	case c.Total < 0 || c.Total > maxElements:
		return fault.New(fault.InvalidArgument,
			"count each parameter once: sum(p.numel() for p in model.parameters())",
			"total parameters %d; the range is 1 to 2^50", c.Total)
	case trainable == 0:
		return fault.New(fault.InvalidArgument, "set requires_grad on what is to be trained",
			"the model has no trainable parameters (of %d)", c.Total)
	case trainable < 0 || trainable > c.Total:
		return fault.New(fault.InvalidArgument, "count the parameters with requires_grad",
			"trainable parameters %d; the range is 1 to total, %d", trainable, c.Total)
	}
	const maxBytes = 16 * maxElements // complex128 is the widest dtype
	for _, b := range []struct {
		field string
		value *int64
	}{{"parameter_bytes", c.ParameterBytes}, {"gradient_bytes", c.GradientBytes},
		{"adafactor_state_bytes", c.AdafactorStateBytes}} {
		if v := profile.Or(b.value, 0); v < 0 || v > maxBytes {
			return fault.New(fault.InvalidArgument, "pass bytes, or leave it out",
				"%s is %d; the range is 0 to 2^54", b.field, v)
		}
	}
	for _, n := range []struct {
		field string
		value *int
	}{{"hidden_size", c.HiddenSize}, {"layers", c.Layers}} {
		if v := profile.Or(n.value, 0); v < 0 || v > maxSize {
			return fault.New(fault.InvalidArgument, "leave it out when unknown",
				"%s is %d; the range is 0 to %d", n.field, v, maxSize)
		}
	}
	return nil
}
