package report

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/diagnosis"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/runlog"
	"github.com/asrconfig/asrconfig-go/core/view"
)

// made is a run of steps from first on, of 10 s audio each, that take pace seconds and hold GiB of
// a card of 100 W.
func made(name string, first uint64, pace float64, used ...float64) Compared {
	log := runlog.Log{DurationS: pace * float64(len(used)), GPUs: []runlog.GPU{{Name: "L4", TotalBytes: 24 << 30}}}
	log.Memory.GPUUsed, log.Activity.GPUs = []runlog.Column{nil}, make([]runlog.GPUSeries, 1)
	for i, gib := range used {
		at := pace * float64(i+1)
		log.Memory.TimesS, log.Activity.TimesS, log.Steps.TimesS = append(log.Memory.TimesS, at), append(log.Activity.TimesS, at), append(log.Steps.TimesS, at)
		log.Memory.HostUsed, log.Memory.GPUUsed[0] = append(log.Memory.HostUsed, absent), append(log.Memory.GPUUsed[0], gib*(1<<30))
		log.Steps.Number, log.Steps.Kind = append(log.Steps.Number, first+uint64(i)), append(log.Steps.Kind, runlog.KindTrain)
		log.Steps.Covers, log.Steps.GPU = append(log.Steps.Covers, 1), append(log.Steps.GPU, 0)
		columns := append(log.Activity.Columns(), log.Activity.GPUs[0].Columns()...)
		for _, column := range append(columns, log.Steps.Columns()...) {
			*column = append(*column, absent)
		}
		log.Activity.GPUs[0].PowerW[i], log.Steps.SpentS[i], log.Steps.AudioS[i] = 100, pace, 10
	}
	return Compared{Name: name, Sources: []Source{{RunLog: log}}}
}

func figure(t *testing.T, c view.RunComparison, key string) [3]float64 {
	t.Helper()
	for _, f := range c.Figures {
		if f.Key == key {
			found := [3]float64{absent, absent, absent}
			for i, v := range []*float64{f.A, f.B, f.Ratio} {
				if v != nil {
					found[i] = *v
				}
			}
			return found
		}
	}
	require.Fail(t, "no such figure", key)
	return [3]float64{}
}

func TestRunsAreComparedOverTheStepsThatBothMade(t *testing.T) {
	a, b := made("a", 1, 2, 8, 8, 8, 8), made("b", 3, 1, 10, 12, 20, 20, 20)
	a.Guard, b.Guard = []GuardEvent{{Step: 1}, {Step: 3}}, []GuardEvent{{Step: 4}, {Step: 7}, {Step: 3}}
	found, err := Compare(CompareRequest{A: a, B: b})
	require.NoError(t, err)
	assert.Equal(t, []uint64{3, 4}, []uint64{*found.First, *found.Last})
	assert.Equal(t, []uint64{1, 4, 3, 7}, []uint64{*found.A.First, *found.A.Last, *found.B.First, *found.B.Last})
	for key, want := range map[string][3]float64{
		"steps_per_s": {0.5, 1, 2}, "audio_rate": {5, 10, 2}, "train_s": {4, 2, 0.5}, "used_peak_bytes": {8 << 30, 12 << 30, 1.5},
		"used_mean_bytes": {8 << 30, 11 << 30, 1.375}, "errors_recovered": {1, 2, 2},
	} {
		assert.Equal(t, want, figure(t, found, key), key)
	}
	for _, f := range found.Figures {
		assert.NotContains(t, []string{"clips_per_s", "utilization", "padding"}, f.Key, "what neither knows is no row")
	}
	assert.Len(t, a.Sources[0].RunLog.Steps.Number, 4, "what was passed is left as it was")
	assert.Len(t, b.Sources[0].RunLog.Activity.GPUs[0].PowerW, 5)
}

func TestRunsWithoutACommonStepAreComparedAsAWhole(t *testing.T) {
	for name, b := range map[string]Compared{"other steps": made("b", 9, 1, 10, 20), "no steps": {Name: "b", Sources: []Source{{RunLog: seen()}}}} {
		found, err := Compare(CompareRequest{A: made("a", 1, 2, 8, 6), B: b})
		require.NoError(t, err, name)
		assert.Nil(t, found.First, name)
		assert.Equal(t, 8.0*(1<<30), figure(t, found, "used_peak_bytes")[0], name)
	}
	_, err := Compare(CompareRequest{A: made("a", 1, 2, 8), B: Compared{Name: "b"}})
	assert.Equal(t, fault.InvalidArgument, fault.From(err).Code)
	assert.ErrorContains(t, err, `"b" has no run logs`)
}

func TestClipsAreCountedWhereSettingsTellThem(t *testing.T) {
	a, b, four, two, one := made("a", 1, 2, 8), made("b", 1, 1, 8), 4, 2, 1
	a.Settings = diagnosis.Run{PerDeviceBatch: &four, Accumulation: &two, Devices: &one}
	b.Settings = diagnosis.Run{PerDeviceBatch: &four, Accumulation: &two}
	found, err := Compare(CompareRequest{A: a, B: b})
	require.NoError(t, err)
	got := figure(t, found, "clips_per_s")
	assert.Equal(t, 4.0, got[0])
	assert.NotEqual(t, got[1], got[1], "not known, and no zero")
}

func TestLossesAreComparedAtTheLastCommonStepAndAtTheEnd(t *testing.T) {
	logs := func(name string, values ...float64) (found []Logged) {
		for i := 0; i < len(values); i += 2 {
			entry := Logged{"step": &values[i], name: nil}
			if values[i+1] >= 0 {
				entry[name] = &values[i+1]
			}
			found = append(found, entry)
		}
		return found
	}
	type rows map[string][2]float64
	for name, row := range map[string]struct {
		a, b []Logged
		want rows
	}{
		"one length":       {logs("loss", 10, 4, 20, 2), logs("loss", 10, 5, 20, 1), rows{"training loss at step 20": {2, 1}}},
		"b is longer":      {logs("loss", 10, 4, 20, 2), logs("loss", 10, 5, 20, 1, 30, 0.5), rows{"training loss at step 20": {2, 1}, "training loss at the end": {2, 0.5}}},
		"other steps":      {logs("eval_wer", 10, 0.4), logs("eval_wer", 15, 0.3), rows{"evaluation WER at the end": {0.4, 0.3}}},
		"not known at 20":  {logs("loss", 10, 4, 20, -1), logs("loss", 10, 5, 20, 1), rows{"training loss at step 10": {4, 5}, "training loss at the end": {4, 1}}},
		"one run logs it":  {nil, logs("eval_clean_cer", 15, 0.3), rows{"evaluation clean CER at the end": {-1, 0.3}}},
		"neither a metric": {logs("learning_rate", 10, 4), nil, rows{}},
	} {
		t.Run(name, func(t *testing.T) {
			got := rows{}
			for _, f := range comparedLogs(row.a, row.b) {
				values := [2]float64{-1, -1}
				for i, v := range []*float64{f.A, f.B} {
					if v != nil {
						values[i] = *v
					}
				}
				got[f.Name] = values
			}
			assert.Equal(t, row.want, got)
		})
	}
}

func TestSettingsThatDifferAreNamed(t *testing.T) {
	a := map[string]any{"bf16": true, "seed": 42.0, "decisions": []any{"x"}, "predicted_bytes": 1.0, "max_length_s": nil, "alloc_conf": ""}
	b := map[string]any{"bf16": false, "seed": 42.0, "decisions": []any{"y"}, "predicted_bytes": 2.0, "max_length_s": 20.0, "distributed": "ddp"}
	assert.Equal(t, []view.ComparedSetting{
		{Name: "alloc_conf", A: "", B: nil}, {Name: "bf16", A: true, B: false}, {Name: "distributed", A: nil, B: "ddp"}, {Name: "max_length_s", A: nil, B: 20.0},
	}, differingSettings(a, b))
	assert.Empty(t, differingSettings(nil, b), "without a file nothing is known")
}
