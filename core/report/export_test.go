package report

import (
	"math"
	"testing"

	"github.com/goccy/go-json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/runlog"
)

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
	assert.Contains(t, string(text), `,'=<\u202e\n>,`, "no formula, and visible")
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
