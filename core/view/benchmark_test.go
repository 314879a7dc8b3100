package view

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// figures are what the groups of a pattern find.
func figures(t *testing.T, text, pattern string) []string {
	found := regexp.MustCompile(pattern).FindStringSubmatch(text)
	require.NotNil(t, found, "%s in\n%s", pattern, text)
	return found[1:]
}

// requireRatio holds a printed ratio against that of two printed figures.
func requireRatio(t *testing.T, printed ...string) {
	var figures [3]float64
	for i, text := range printed {
		figure, err := strconv.ParseFloat(text, 64)
		require.NoError(t, err)
		figures[i] = figure
	}
	require.InEpsilon(t, figures[1]/figures[2], figures[0], 0.01, "%v", printed)
}

// The recorded one is of a real run with an even number of rounds, of which a median is between
// two.
func TestASpeedUpIsTheRatioOfThePrintedRates(t *testing.T) {
	for _, kind := range []string{"benchmark", "benchmark_recorded"} {
		text := rendered(t, "benchmark", "text", record(t, kind)).Text
		speedup := figures(t, text, `^([\d.]+)×`)[0]
		rates := figures(t, text, `(?m)^([\d.]+) samples/s instead of ([\d.]+);`)
		requireRatio(t, speedup, rates[0], rates[1])
		row := figures(t, text, `(?m)^  samples/s +([\d.]+) .*?\)  +([\d.]+)`)
		require.Equal(t, []string{rates[1], rates[0]}, row)
		steps := figures(t, text, `(?m)^  a step +([\d.]+) ms .*?\)  +([\d.]+) ms`)
		requireRatio(t, speedup, steps[0], steps[1])
	}
}

// changed is the benchmark's record with other values.
func changed(t *testing.T, change func(map[string]any)) []byte {
	var r map[string]any
	require.NoError(t, json.Unmarshal(record(t, "benchmark"), &r))
	change(r)
	raw, err := json.Marshal(r)
	require.NoError(t, err)
	return raw
}

func TestAResultFitsAScreen(t *testing.T) {
	long := strings.Repeat("a very long remark on what was left out of it ", 8)
	crowded := changed(t, func(r map[string]any) {
		r["too_few_rounds"], r["unfinished"] = true, []string{"both sides", "loading data", "single changes", "the profile"}
		r["notes"] = []string{long, long, long, long, long}
		r["setting"].(map[string]any)["model"], r["setting"].(map[string]any)["device"] = "organisation/"+long, long
		original := r["original"].(map[string]any)
		original["adapted"] = "8 × 1 ran out of memory on this device; 4 × 2 ran out of memory on this device"
		original["settings"] = map[string]any{"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4, "gradient_checkpointing": true}
	})
	for _, raw := range [][]byte{crowded, record(t, "benchmark"), record(t, "benchmark_recorded")} {
		lines := strings.Split(rendered(t, "benchmark", "brief", raw).Text, "\n")
		require.LessOrEqual(t, len(lines), briefLines, strings.Join(lines, "\n"))
	}
	require.Contains(t, rendered(t, "benchmark", "brief", crowded).Text, "too few rounds")
}

func TestAResultSaysWhatToDoAndWhatIsDoubtful(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(map[string]any)
		want   []string
	}{
		{"slower", func(r map[string]any) { r["verdict"] = "slower" }, []string{"Keep your settings"}},
		{"undecided", func(r map[string]any) { r["verdict"] = "undecided" }, []string{"It is not clear that the plan is faster"}},
		{"few rounds", func(r map[string]any) {
			r["too_few_rounds"] = true
			r["plan"].(map[string]any)["clips_per_s"].(map[string]any)["count"] = 2
		}, []string{"too few rounds: 2 measured rounds of at least 5", "2.91 to 3.09×"}},
		{"out of time", func(r map[string]any) {
			r["unfinished"] = []string{"loading data", "single changes"}
			r["setting"].(map[string]any)["minutes"] = 1
		}, []string{"ended after 60 s (--minutes); unfinished: loading data, single changes"}},
		{"Ctrl-C", func(r map[string]any) {
			r["stopped"], r["unfinished"] = true, []string{"both sides"}
		}, []string{"stopped by Ctrl-C; unfinished: both sides"}},
		{"a batch that did not fit", func(r map[string]any) {
			r["original"].(map[string]any)["name"] = "the Trainer's defaults"
			r["original"].(map[string]any)["adapted"] = "16 × 2 ran out of memory on this device"
		}, []string{"3.00× the Trainer's defaults: batch 8 × 4, fp32", "the Trainer's defaults: 16 × 2 ran out of memory on this device; measured with 8 × 4"}},
		{"a baseline that does not fit", func(r map[string]any) {
			r["original"].(map[string]any)["problem"], r["speedup"] = "out of memory", nil
		}, []string{"out of memory with your settings: batch 8 × 4, fp32; the plan trains"}},
		{"the plan alone", func(r map[string]any) { r["original"], r["verdict"] = nil, "" }, []string{"200 samples/s with the plan", "Train with the plan: batch 8 × 4, fp16"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			raw := changed(t, test.change)
			_, said := sound(t, rendered(t, "benchmark", "html", raw).Text)
			for _, want := range test.want {
				require.Contains(t, rendered(t, "benchmark", "brief", raw).Text, want)
				require.Contains(t, said, want)
			}
		})
	}
}
