package api

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/runlog"
)

func TestFieldsAreAsInMemory(t *testing.T) {
	type ac struct {
		GPUCount int
		Valid    bool
		PeakS    float64
		Rows     [2]int64
	}
	assert.Equal(t, []CField{
		{"gpu_count", "intptr_t", 0, 0, 8}, {"valid", "bool", 0, 8, 1}, {"peak_s", "double", 0, 16, 8}, {"rows", "int64_t", 2, 24, 16},
	}, CFields(reflect.TypeFor[ac]()))
	assert.PanicsWithValue(t, "string cannot cross the C boundary: use a fixed size, float64 or bool", func() {
		CFields(reflect.TypeFor[struct{ Kind string }]())
	})
}

// TestEveryFieldOfAStepIsLogged sets each field to a number of its own.
func TestEveryFieldOfAStepIsLogged(t *testing.T) {
	var step Step
	given := reflect.ValueOf(&step).Elem()
	for i := range given.NumField() {
		given.Field(i).Set(reflect.ValueOf(i + 1).Convert(given.Field(i).Type()))
	}
	step.Kind = 2
	logged := reflect.ValueOf(step.logged())
	for i := range given.NumField() {
		name := given.Type().Field(i).Name
		switch name {
		case "Kind":
			require.Equal(t, runlog.KindCheckpoint, logged.FieldByName(name).Interface())
			continue
		case "AgoS":
			require.Equal(t, -given.Field(i).Float(), logged.FieldByName("AtS").Float())
			continue
		}
		require.Equal(t, logged.FieldByName(name).Interface(), given.Field(i).Interface(), name)
	}
}

func TestKindsThatAreNone(t *testing.T) {
	for kind, known := range map[int64]bool{-1: false, 0: true, 2: true, 3: false, 1 << 62: false} {
		assert.Equal(t, known, (&Step{Kind: kind}).KindKnown(), kind)
	}
}

// TestEveryResultHasAType: an operation whose function gives any, and is not a reading of changing
// names, cannot be documented.
func TestEveryResultHasAType(t *testing.T) {
	require.Len(t, Operations(), len(table))
	for _, o := range Operations() {
		assert.Equal(t, reflect.Struct, o.Args.Kind(), o.Name)
		assert.NotEqual(t, reflect.Interface, o.Result.Kind(), "%s: give a struct instead of any", o.Name)
	}
}

func TestARequestIsOneJSONValue(t *testing.T) {
	const good = `{"v":1,"op":"plan.check","args":{"target_batch_size":32,"safety_margin":0.85}}`
	require.Contains(t, string(Call([]byte(" "+good+"\n"))), `"ok":true`)
	for _, text := range []string{
		good + "]", good + "}", good + " ]]}", good + good, good + ",", good[:len(good)-1], "", " ", "[" + good + "]", good + "\xff",
		strings.Replace(good, "1", "01", 1), strings.Replace(good, "1", "1.", 1), strings.Replace(good, "32", "NaN", 1),
		strings.Replace(good, "32", strings.Repeat("[", 1<<20), 1), strings.Replace(good, "32,", "32],", 1), strings.Replace(good, "32", "--32", 1),
	} {
		answer := string(Call([]byte(text)))
		require.Contains(t, answer, `"code":"invalid_argument","message":"reading the request: `, "%.100q", text)
	}
}
