package view

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/profile"
)

// What the short forms must say of the records in testdata.
var inBrief = map[string][]string{
	"plan":           {"22 + 10 = 32 clips a step", "peak 11.9 of 15.0 GiB", "3 epochs in", "US$", "  gradient_checkpointing = "},
	"hardware":       {"NVIDIA L4, 22.5 GiB", "CPU "},
	"model":          {"M parameters"},
	"dataset":        {"clips by duration: ", "█", "padding in batches of"},
	"memory":         {"fits NVIDIA L4", "held by ", "activations"},
	"comparison":     {"cheapest: ", "fastest: ", "RTX 4090", "3.62 (2.13–6.26)", "on which it does not fit"},
	"largest models": {"largest, fully: ", "✓"},
	"run":            {"steps in 10 min", "→ "},
	"run comparison": {"bf16 against base: ", "× steps/s", "peak GPU memory"},
	"benchmark":      {"3.00× your settings: batch 8 × 4, fp32", "200 samples/s instead of 66.7"},
}

func TestShortForms(t *testing.T) {
	for kind, figures := range inBrief {
		t.Run(kind, func(t *testing.T) {
			lines := strings.Split(rendered(t, kind, "brief", record(t, kind)).Text, "\n")
			require.LessOrEqual(t, len(lines), briefLines)
			for _, line := range lines {
				require.LessOrEqual(t, columns(line), defaultWidth, line)
			}
			for _, figure := range figures {
				require.Contains(t, strings.Join(lines, "\n"), figure)
			}
		})
	}
}

func TestShortFormsStayShort(t *testing.T) {
	d := profile.Dataset{SampleCount: 3, MeasuredCount: 0, BadCount: 900}
	for i := range 900 {
		d.BadFiles = append(d.BadFiles, profile.BadFile{Path: fmt.Sprintf("clip%d.wav", i), Error: "is empty"})
		d.Warnings = append(d.Warnings, strings.Repeat("long ", 100))
	}
	raw, err := json.Marshal(d)
	require.NoError(t, err)
	lines := strings.Split(rendered(t, "dataset", "brief", raw).Text, "\n")
	require.LessOrEqual(t, len(lines), briefLines)
	require.Contains(t, lines[len(lines)-1], "more")
}
