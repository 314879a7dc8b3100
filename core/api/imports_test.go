package api

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/asrconfig/asrconfig-go/"

// allowed is the direction of imports inside the module: measure and decide below, the table above,
// the C boundary on top. Planning and recovery are pure: they see data, never a device or a file.
var allowed = map[string][]string{
	"core/fault":                  {},
	"core/jsontext":               {},
	"core/profile":                {"core/units"},
	"core/parallel":               {"core/fault"},
	"core/units":                  {},
	"core/view":                   {"core/compare", "core/diagnosis", "core/estimate", "core/fault", "core/memory", "core/memory/peak", "core/plan", "core/profile", "core/runlog", "core/units"},
	"core/audio":                  {"core/audio/amr", "core/audio/flac", "core/audio/isobmff", "core/audio/matroska", "core/audio/media", "core/audio/mpeg", "core/audio/ogg", "core/audio/pcm", "core/audio/riff", "core/fault"},
	"core/audio/amr":              {"core/audio/media"},
	"core/audio/audiotest":        {"core/audio/media", "core/fault"},     // for tests
	"core/audio/audiotest/entry":  {"core/audio", "core/audio/audiotest"}, // for tests
	"core/audio/codec":            {"core/audio/media"},
	"core/audio/flac":             {"core/audio/media"},
	"core/audio/isobmff":          {"core/audio/codec", "core/audio/flac", "core/audio/media"},
	"core/audio/matroska":         {"core/audio/codec", "core/audio/flac", "core/audio/media", "core/audio/pcm"},
	"core/audio/media":            {"core/fault"},
	"core/audio/mpeg":             {"core/audio/codec", "core/audio/media"},
	"core/audio/ogg":              {"core/audio/codec", "core/audio/flac", "core/audio/media"},
	"core/audio/pcm":              {"core/audio/media", "core/fault"},
	"core/audio/riff":             {"core/audio/codec", "core/audio/media", "core/audio/mpeg", "core/audio/pcm"},
	"core/batching":               {"core/fault", "core/parallel", "core/units"},
	"core/dataset":                {"core/audio", "core/audio/media", "core/batching", "core/fault", "core/parallel", "core/profile", "core/units"},
	"core/gpus":                   {"core/fault", "core/jsontext", "core/profile"},
	"core/hardware":               {"core/fault", "core/gpus", "core/profile", "core/runlog", "core/units"},
	"core/memory":                 {"core/fault", "core/gpus", "core/memory/allocator", "core/memory/formula", "core/memory/peak", "core/memory/reduction", "core/memory/replay", "core/memory/template", "core/memory/trace", "core/parallel", "core/profile", "core/timing/kernel"},
	"core/memory/trace":           {"core/fault", "core/jsontext", "core/parallel", "core/profile"},
	"core/memory/trace/tracetest": {"core/memory/trace"},
	"core/memory/reduction":       {"core/fault", "core/memory/trace", "core/profile"},
	"core/memory/formula":         {"core/fault", "core/memory/trace"},
	"core/memory/template":        {"core/fault", "core/memory/formula", "core/memory/reduction", "core/memory/trace", "core/parallel"},
	"core/memory/peak":            {},
	"core/memory/replay":          {"core/memory/allocator", "core/memory/formula", "core/memory/peak", "core/memory/reduction", "core/memory/template", "core/memory/trace"},
	"core/memory/allocator":       {"core/fault"},
	"core/memory/device":          {"core/fault", "core/gpus", "core/profile"},
	"core/memory/sharding":        {"core/fault"},
	"core/model":                  {"core/fault", "core/jsontext", "core/profile"},
	"core/estimate":               {"core/fault", "core/gpus", "core/profile", "core/timing", "core/timing/kernel"},
	"core/plan":                   {"core/batching", "core/estimate", "core/fault", "core/memory/sharding", "core/profile", "core/timing", "core/timing/kernel", "core/units"},
	"core/recovery":               {"core/fault"},
	"core/timing":                 {"core/fault", "core/jsontext", "core/profile", "core/units"},
	"core/timing/kernel":          {"core/fault", "core/gpus", "core/jsontext", "core/profile", "core/timing"},
	"core/compare":                {"core/estimate", "core/fault", "core/gpus", "core/parallel", "core/plan", "core/profile", "core/timing", "core/timing/kernel", "core/units"},
	"core/runlog":                 {"core/fault"},
	"core/forecast":               {"core/runlog", "core/units"},
	"core/monitor":                {"core/fault", "core/forecast", "core/profile", "core/runlog"},
	"core/diagnosis":              {"core/fault", "core/profile", "core/runlog", "core/units"},
	"core/report":                 {"core/diagnosis", "core/fault", "core/profile", "core/runlog", "core/view"},
	"core/api":                    {"core/audio", "core/batching", "core/dataset", "core/diagnosis", "core/fault", "core/forecast", "core/gpus", "core/hardware", "core/jsontext", "core/memory", "core/memory/allocator", "core/memory/device", "core/memory/peak", "core/memory/sharding", "core/memory/trace", "core/model", "core/monitor", "core/plan", "core/profile", "core/recovery", "core/report", "core/runlog", "core/timing", "core/timing/kernel", "core/compare", "core/view"},
	"capi":                        {"core/api", "core/fault", "core/monitor"},
	"build/generate":              {"core/api", "core/batching", "core/estimate", "core/memory/sharding", "core/plan", "core/profile", "core/runlog", "core/timing/kernel", "core/units"},
	"build/names":                 {},

	"benchmarks/forecast_truth": {"core/forecast", "core/memory/allocator", "core/parallel", "core/runlog"},
	"benchmarks/time_truth":     {"core/gpus", "core/profile", "core/timing", "core/timing/kernel"},
	"benchmarks/time_truth/fit": {"core/gpus", "core/profile", "core/timing", "core/timing/kernel"},
	"benchmarks/scan_floor":     {}, // measures what the system needs, without any of this
}

func TestImportDirection(t *testing.T) {
	command := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, module+"...")
	out, err := command.Output()
	require.NoError(t, err)
	seen := 0
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		pkg := strings.TrimPrefix(fields[0], module)
		rules, known := allowed[pkg]
		require.True(t, known, "%s is a new package: give it a row in this table", pkg)
		seen++
		for _, imported := range fields[1:] {
			if inside, ok := strings.CutPrefix(imported, module); ok {
				require.Contains(t, rules, inside, "%s must not import %s", pkg, inside)
			}
		}
	}
	require.Len(t, allowed, seen)
}

func TestPureRoomsDoNoIO(t *testing.T) {
	for _, pkg := range []string{"core/batching", "core/plan", "core/recovery", "core/profile", "core/memory/sharding", "core/forecast", "core/diagnosis", "core/gpus", "core/report", "core/units", "core/view"} {
		out, err := exec.Command("go", "list", "-f", `{{join .Imports "\n"}}`, module+pkg).Output()
		require.NoError(t, err)
		for imported := range strings.Lines(string(out)) {
			require.NotContains(t, []string{"os", "net", "net/http", "os/exec", "syscall", "io/fs"}, strings.TrimSpace(imported), pkg)
		}
	}
}
