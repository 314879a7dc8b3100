package report

import (
	"math"
	"testing"

	"github.com/goccy/go-json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/diagnosis"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/runlog"
	"github.com/asrconfig/asrconfig-go/core/view"
)

func TestAPartInOrderIsNotReportedBesideAPartWithACause(t *testing.T) {
	short, well, cause := diagnosis.Finding{Kind: "too_short"}, diagnosis.Finding{Kind: "healthy"}, diagnosis.Finding{Kind: "evaluations"}
	for _, row := range []struct{ found, want []diagnosis.Finding }{
		{[]diagnosis.Finding{short, well, cause}, []diagnosis.Finding{cause}},
		{[]diagnosis.Finding{short, well, well}, []diagnosis.Finding{well, well}},
		{[]diagnosis.Finding{short}, []diagnosis.Finding{short}},
		{nil, nil},
	} {
		assert.Equal(t, row.want, conclusive(row.found))
	}
}

func TestEnergyIsNotCountedAcrossAGap(t *testing.T) {
	watts := line{[]float64{0, 1, 2, 3, 1000, 1001, 1002}, runlog.Column{3600, 3600, absent, 3600, 3600, 3600, 3600}}
	assert.Equal(t, totals{6, 6 * 3600, 6 * 3600, 6}, watts.totals())
	assert.Equal(t, 3600.0, *watts.mean())
	assert.Nil(t, line{}.mean())
	assert.Equal(t, 2.0, *line{[]float64{1, 1}, runlog.Column{1, 3}}.mean(), "of one moment")
}

func TestLinesAreThinnedAndBroken(t *testing.T) {
	a, err := newAxis(&timeline{duration: 960}, "time")
	require.NoError(t, err)
	assert.Equal(t, "min", a.unit)
	l := line{[]float64{0, 1, 2, 4, 6, 8, 100}, runlog.Column{10, 30, 20, absent, 40, 50, 60}}
	assert.Equal(t, [][][2]float64{{{0, 3}, {2.0 / 60, 2}}, {{6.0 / 60, 4}, {8.0 / 60, 5}}, {{100.0 / 60, 6}}}, a.thinned(l, false, false, 10))
	assert.Equal(t, 20.0, a.thinned(l, true, false, 1)[0][0][1])
}

func number64(x float64) *float64 { return &x }

func TestWhatTheTrainerLoggedIsDrawnWhereItsStepsWere(t *testing.T) {
	log := seen()
	log.DurationS = 48
	for i := range 4 { // steps 3 to 6, one each 10 s
		log.Steps.Number = append(log.Steps.Number, uint64(3+i))
		log.Steps.TimesS = append(log.Steps.TimesS, float64(10*(i+1)))
		log.Steps.Kind, log.Steps.Covers, log.Steps.GPU = append(log.Steps.Kind, runlog.KindTrain), append(log.Steps.Covers, 1), append(log.Steps.GPU, -1)
		for _, column := range log.Steps.Columns() {
			*column = append(*column, absent)
		}
	}
	entry := func(step float64, name string, value *float64) Logged { return Logged{"step": &step, name: value} }
	history := []Logged{
		entry(1, "loss", number64(9)), entry(3, "loss", number64(4)), entry(4, "loss", nil), entry(5, "loss", number64(2)), entry(5, "eval_loss", number64(3)),
		entry(2, "eval_test_wer", number64(0.5)), entry(6, "loss", number64(1)), entry(6, "loss", number64(1e300)), entry(7, "loss", number64(8)),
		{"loss": number64(7)}, entry(6, "train_loss", number64(5)),
	}
	found, err := Make(Request{Sources: []Source{{RunLog: log}}, By: "time", History: history})
	require.NoError(t, err)
	var panels []view.RunPanel
	for _, p := range found.Charts.Panels {
		if p.Group == view.GroupTraining {
			panels = append(panels, p)
		}
	}
	require.Len(t, panels, 2, "learning rates were not logged")
	assert.Equal(t, []string{"Loss", "WER"}, []string{panels[0].Title, panels[1].Title})
	require.Equal(t, []string{"training", "evaluation"}, []string{panels[0].Series[0].Name, panels[0].Series[1].Name})
	assert.Equal(t, [][][2]float64{{{10, 4}}, {{30, 2}, {40, 1}}}, panels[0].Series[0].Pieces, "what is not known is a gap, what was not seen is left out")
	assert.Equal(t, [][][2]float64{{{30, 3}}}, panels[0].Series[1].Pieces)
	assert.Equal(t, "evaluation test", panels[1].Series[0].Name)
	assert.Equal(t, [][][2]float64{{{10, 0.5}}}, panels[1].Series[0].Pieces, "before the first step")
	found, err = Make(Request{Sources: []Source{{RunLog: log}}, By: "steps", History: history[:2]})
	require.NoError(t, err)
	assert.Equal(t, 3.0, found.Charts.Panels[1].Series[0].Pieces[0][0][0], "of steps")
}

var absent = math.NaN()

// seen is half a second of one GPU.
func seen() runlog.Log {
	return runlog.Log{
		StartUnixNanos: 1e18, DurationS: 0.5, GPUs: []runlog.GPU{{Name: "<L4>"}},
		Memory:   runlog.MemorySeries{TimesS: []float64{0.5}, HostUsed: runlog.Column{absent}, GPUUsed: []runlog.Column{{1 << 34}}},
		Activity: runlog.ActivitySeries{GPUs: make([]runlog.GPUSeries, 1)},
		Events:   []runlog.Event{{AtS: 0.1234567, Kind: "training", GPU: -1, Text: "=<\u202e\n>"}},
	}
}

func TestExport(t *testing.T) {
	later := seen()
	later.StartUnixNanos += 1e9
	sources := []Source{{Name: "", RunLog: seen()}, {Name: "node1", RunLog: later}}
	text, err := Export(sources, "csv")
	require.NoError(t, err)
	assert.Contains(t, string(text), "\n0.5,1000000000.5,first,memory,,17179869184,")
	assert.Contains(t, string(text), "\n1.5,1000000001.5,node1,memory,")
	assert.Contains(t, string(text), `'=<`, "no formula")
	text, err = Export(sources[:1], "jsonl")
	require.NoError(t, err)
	assert.Contains(t, string(text), `"gpus":[{"name":"<L4>",`)
	assert.Contains(t, string(text), "\n"+`{"time_s":0.123457,"unix_s":1000000000.123,"series":"event","kind":"training","text":"=<`)
	text, err = Export(sources, "chrome")
	require.NoError(t, err)
	var trace struct {
		Events []struct {
			Name string
			PID  int
			TS   float64
			Args map[string]any
		} `json:"traceEvents"`
	}
	require.NoError(t, json.Unmarshal(text, &trace))
	last := trace.Events[len(trace.Events)-1]
	assert.Equal(t, []any{"training", 101, 1123457.0, "=<\u202e\n>"}, []any{last.Name, last.PID, last.TS, last.Args["text"]})
	_, err = Export(sources, "xml")
	assert.Equal(t, fault.InvalidArgument, fault.From(err).Code)
	text, err = Export(nil, "chrome")
	require.NoError(t, err)
	assert.Equal(t, `{"traceEvents":[],"displayTimeUnit":"ms","otherData":{"start_unix_nanos":"0"}}`, string(text))
}

func TestNumbersKeepEveryDigit(t *testing.T) {
	for want, number := range map[string]float64{"0": 0, "-3": -3, "17179869184": 1 << 34, "0.1": 0.1, "1e-05": 1e-5, "123456789.125": 123456789.125, "1.5e+17": 1.5e17} {
		assert.Equal(t, want, string(appendNumber(nil, number)))
	}
}
