package main

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/goccy/go-json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFilesAreWhatGoDeclares(t *testing.T) {
	files, err := generate("../..")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for path, wanted := range files {
		onDisk, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, string(wanted), string(onDisk), "run make generate: %s differs", path)
	}
}

func TestTypesInJSON(t *testing.T) {
	type inner struct {
		Seconds []float64 `json:"seconds"`
	}
	type outer struct {
		inner
		Names  map[string]*int `json:"names"`
		Raw    []byte          `json:"raw"`
		Hidden int             `json:"-"`
		Inner  *inner          `json:"inner"`
		_      int
	}
	c := &contract{types: map[string]reflect.Type{}}
	assert.Equal(t, []field{
		{"seconds", "list of number", ""}, {"names", "object of integer | null", ""}, {"raw", "string", ""}, {"inner", "main.inner | null", ""},
	}, c.fields(reflect.TypeFor[outer]()))
	require.NoError(t, c.err)
	assert.Equal(t, []record{{"main.inner", "", []field{{"seconds", "list of number", ""}}}}, c.Records)
}

func TestWhatCannotBeDescribedIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		of      reflect.Type
		problem string
	}{
		"no name": {reflect.TypeFor[struct{ Seconds int }](), "needs a JSON name"},
		"its own JSON": {reflect.TypeFor[struct {
			Text json.Number `json:"text"`
			Own  ownJSON     `json:"own"`
		}](), "main.ownJSON writes its own JSON"},
		"no JSON": {reflect.TypeFor[struct {
			Channel chan int `json:"channel"`
		}](), "chan int has no JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			empty := &contract{types: map[string]reflect.Type{}}
			empty.fields(c.of)
			assert.ErrorContains(t, empty.err, c.problem)
		})
	}
}

type ownJSON struct{}

func (ownJSON) MarshalJSON() ([]byte, error) { return []byte("1"), nil }

func TestCommentsLoseTheNameTheyBeginWith(t *testing.T) {
	docs, err := readComments("../..")
	require.NoError(t, err)
	for name, wanted := range map[string]string{
		"core/monitor.Stats":         "The newest sample. Sizes are bytes.",
		"core/monitor.Stats.Samples": "taken since the start, at least 1",
		// declared on one line
		"core/monitor.GPUStats.Reserved": docs[module+"core/monitor.GPUStats.Allocated"],
		"core/api.durations.attach":      "Takes more durations in seconds, little-endian float64.",
		"core/api.Step.KindKnown":        "Reports whether the kind is one of StepKinds.",
	} {
		assert.Equal(t, wanted, docs[module+name], name)
	}
}

func TestCommentsReadAsDocstrings(t *testing.T) {
	names := map[string]string{"PredictedBytes": "predicted_bytes", "GPUs": "gpus", "Memory": "memory"}
	for comment, wanted := range map[string]string{
		"":                                   "",
		"absent without a GPU":               "None without a GPU.",
		"of PredictedBytes, on all GPUs":     "Of ``predicted_bytes``, on all GPUs.",
		"Memory is what it takes.":           "Memory is what it takes.",
		`"fixed"; "" for none, 0.70..0.95`:   "``\"fixed\"``; ``\"\"`` for none, 0.70 to 0.95.",
		`in words: "steps of one length", …`: `In words: "steps of one length", …`,
	} {
		assert.Equal(t, wanted, pythonSentence(comment, names))
	}
	long := strings.Repeat("word ", 20)
	assert.Equal(t, `    """Short."""`, docstring("Short."))
	assert.Equal(t, "    \"\"\"One sentence.\n\n    "+strings.TrimSpace(long)+"\n    \"\"\"",
		docstring("One sentence. "+strings.TrimSpace(long)))
}

func TestReadingsAreOneValueOfEachColumn(t *testing.T) {
	series := []attribute{{"times_s", "tuple[float, ...]", "", ""}, {"power_w", column, "watts", ""},
		{"gpus", "tuple[GPUActivitySeries, ...]", "", ""}}
	newest := reading(pythonClasses["runlog.ActivitySeries"], series)
	assert.Equal(t, "Activity", newest.Name)
	assert.Equal(t, []attribute{{"at_s", "float | None", "None before the first.", ""},
		{"power_w", "float | None", "watts", ""}, {"gpus", "tuple[GPUActivity, ...]", "", ""}}, newest.Fields)
}
