package main

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/api"
	"github.com/asrconfig/asrconfig-go/core/batching"
	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/memory/sharding"
	"github.com/asrconfig/asrconfig-go/core/plan"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/runlog"
	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
	"github.com/asrconfig/asrconfig-go/core/units"
)

//go:embed declared.py.tmpl
var declaredText string

// declared is what Python takes from Go besides records: closed sets of values, numbers and words.
type declared struct {
	Choices   []choice
	Constants []constant
	Rows      []rowKind
}

// choice is a Literal.
type choice struct {
	Name, Comment string
	Values        []string
}

type constant struct{ Name, Value, Comment string }

// rowKind is a kind of rows by its name in JSON.
type rowKind struct {
	Name units.RowKind
	units.RowWords
}

func readDeclared() declared {
	kinds := []units.RowKind{units.Clips, units.Texts}
	d := declared{Choices: []choice{
		{"Policy", "A search for the least predicted time, or a formula, for comparison.",
			plan.Policies},
		{"Preset", "", plan.Presets},
		{"PlannedOptimizer", "By the Trainer's names: those that a plan can choose.",
			plan.OptimizerNames()},
		{"Optimizer", "By the Trainer's names: those whose memory is known.",
			estimate.OptimizerNames()},
		{"LRScaling", "", plan.LRScalings},
		{"Preprocessing", "``\"light\"`` is reading and resampling only, ``\"heavy\"`` adds " +
			"augmentation.", plan.Preprocessings},
		{"Precision", "", plan.Precisions},
		{"LengthHandling", "", plan.LengthHandlings},
		{"MicroBatching", "", plan.MicroBatchings},
		{"StepMode", "Which clips make up an optimizer step; ``\"grouped\"`` is the Trainer's own.",
			batching.Modes},
		{"Distributed", "In the order in which one would try them: each needs less memory than " +
			"the one before, and sends more.", sharding.Strategies()},
		{"Strategy", "", append([]string{"none"}, sharding.Strategies()...)},
		{"WeightRule", "What a micro-batch's loss is divided by: clips, tokens, tokens but each " +
			"clip's first, nothing.", plan.WeightRules},
		{"PlannedRule", "What a plan says that a loss is divided by; ``\"given\"`` stands for a " +
			"function.", plan.Rules},
		{"StepKind", "", api.StepKinds},
		{"PredictedFor", "Settings that predicted memory and times hold for: once one is " +
			"overridden, they no longer do.", plan.PredictedFor},
	}, Constants: []constant{
		{"MARGIN_RANGE", fmt.Sprintf("(%v, %v)", plan.MinSafetyMargin, plan.MaxSafetyMargin),
			"The least and the greatest safety margin."},
		{"SCHEMA_VERSION", fmt.Sprint(profile.SchemaVersion), "The schema of a saved plan."},
		{"RUN_LOG_VERSION", fmt.Sprint(runlog.Version), ""},
		{"KERNEL_TABLE_VERSION", fmt.Sprint(kernel.TableVersion), ""},
		{"UNSET_VERSION", fmt.Sprintf("%q", api.Version),
			"The version of a library that was not built by setup.py."},
		{"SHORTEST_S", fmt.Sprint(estimate.Shortest),
			"Seconds; shorter clips are planned with this length."},
		{"OVERHEAD_S", fmt.Sprintf("%.1f", plan.UnknownOverheadS), "What a micro-batch costs " +
			"besides its padded seconds, in seconds of audio, unless it was predicted."},
		{"BUCKETS", fmt.Sprint(plan.UsualBuckets),
			"How many ranges of length bucketed steps are drawn from."},
		{"REDUCE_BUCKET", fmt.Sprint(sharding.ReduceBucket), "Elements, as those below. DeepSpeed's " +
			"own (5e8 and 1e9) are larger than most models: nothing would be saved."},
		{"PREFETCH_BUCKET", fmt.Sprint(sharding.PrefetchBucket), ""},
		{"LIVE_PARAMETERS", fmt.Sprint(sharding.LiveParameters), ""},
	}}
	for _, kind := range kinds {
		d.Rows = append(d.Rows, rowKind{kind, units.Words[kind]})
	}
	return d
}

// Literal is the choice in Python, formatted as ruff does.
func (c choice) Literal() string {
	quoted := make([]string, len(c.Values))
	for i, value := range c.Values {
		quoted[i] = fmt.Sprintf("%q", value)
	}
	line := fmt.Sprintf("%s = Literal[%s]", c.Name, strings.Join(quoted, ", "))
	if len(line) <= pythonWidth {
		return line
	}
	return fmt.Sprintf("%s = Literal[\n    %s,\n]", c.Name, strings.Join(quoted, ",\n    "))
}
