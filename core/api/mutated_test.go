package api

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// Requests mutated from the golden ones, through the entry of ac_call. More of them:
// go test ./core/api -run Mutated -mutations 100000 -timeout 2h. One again: -mutations 1 -first NUMBER.
var (
	mutations = flag.Int("mutations", 8000, "how many mutated requests")
	first     = flag.Uint64("first", 0, "the number of the first mutated request")
)

const (
	longestRequest = slowdown * 5 * time.Second // a bound for loops that do not end, not a benchmark
	mostAllocated  = 1 << 30                    // bytes, in all, by one request
)

func TestMutatedRequestsGetAWellFormedAnswer(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	inFolderOfOddFiles(t)
	seeds := mutationSeeds(t)
	m := mutator{fields: map[string][]any{}}
	for _, of := range seeds {
		for _, seed := range of {
			m.learn(seed)
		}
	}
	answered := map[string]*[2]int{}
	for number := *first; number < *first+uint64(*mutations); number++ {
		m.Rand = rand.New(rand.NewPCG(number, 0))
		of := seeds[m.IntN(len(seeds))]
		raw := m.request(alive(t, of[m.IntN(len(of))]))
		answer := checked(t, number, raw)
		count(answered, raw, answer.OK)
		finish(t, number, raw, answer)
	}
	if *mutations >= 8000 && *first == 0 {
		for name := range table {
			require.Contains(t, answered, name)
			require.Positive(t, answered[name][1], "%s was never refused", name)
			require.Positive(t, answered[name][0], "%s never succeeded", name)
		}
	}
}

// inFolderOfOddFiles works in a folder with the files that the literals name.
func inFolderOfOddFiles(t *testing.T) {
	t.Helper()
	golden, err := filepath.Abs(goldenDir)
	require.NoError(t, err)
	t.Chdir(t.TempDir())
	require.NoError(t, os.MkdirAll("work/folder", 0o755))
	t.Chdir("work")
	require.NoError(t, os.Symlink(golden, "golden"))
	require.NoError(t, os.Symlink("/dev/zero", "zero"))
	require.NoError(t, syscall.Mkfifo("pipe", 0o600))
	require.NoError(t, os.WriteFile("text", []byte("[[[[{\n"), 0o600))
	clip, err := os.ReadFile(filepath.Join(golden, "../../core/audio/riff/testdata", "short_ima.wav"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile("clip.wav", clip, 0o600))
	require.NoError(t, os.WriteFile("list.jsonl", []byte(`{"audio_filepath":"clip.wav","text":"one"}`+"\n"), 0o600))
}

// moreSeeds are requests that no golden file can have, as their answers change.
var moreSeeds = []string{
	`{"v":1,"op":"library.info","args":{}}`,
	`{"v":1,"op":"hardware.detect","args":{"gpu":"","visible_devices":"0,1","library_path":"none.so","root":"folder"}}`,
	`{"v":1,"op":"monitor.start","args":{"interval_ms":100,"pid":0,"visible_devices":null,"library_path":"none.so","root":"folder"}}`,
	`{"v":1,"op":"scan.open","args":{"workers":2}}`,
	`{"v":1,"op":"scan.start","args":{"workers":2,"paths":["text","zero","pipe","folder","none.wav"]}}`,
	`{"v":1,"op":"scan.start","args":{"clips":[{"path":"a.wav","seconds":2.5},{"path":"b.wav","seconds":3}],"sample_size":1,"seed":7}}`,
	`{"v":1,"op":"scan.start","args":{"manifest":"list.jsonl","texts":true,"text_field":"text"}}`,
	`{"v":1,"op":"scan.start","args":{"manifest":"list.jsonl","list":true,"audio_field":"path","columns":["split"]}}`,
	`{"v":1,"op":"scan.start","args":{"folder":"."}}`,
	`{"v":1,"op":"scan.add","args":{"job":999999,"paths":["clip.wav"],"path_rows":[3],"clips":[],"rows":[]}}`,
	`{"v":1,"op":"scan.start","args":{"shards":["text"],"texts":true}}`,
	`{"v":1,"op":"scan.start","args":{"folder":".","part":{"index":1,"count":3}}}`,
	`{"v":1,"op":"scan.add","args":{"job":999999,"page":{"count":1,"kind_list":[{}],"claims":[],"errors":[{"index":0,"error":"bad"}],"listing":7}}}`,
	`{"v":1,"op":"batching.order","args":{"seconds":[1,2,3,4,5,6,7],"options":{"mode":"random","step_samples":2,"ranks":2,"buckets":1}}}`,
	`{"v":1,"op":"batching.order","args":{"seconds":[1,2,3,4,5,6,7,8],"options":{"mode":"random","step_samples":4,"ranks":2,"shares":[3,1],"buckets":1}}}`,
	`{"v":1,"op":"batching.order","args":{"seconds":[3,1,2],"options":{"mode":"random","step_samples":1,"ranks":1,"buckets":1}}}`,
	`{"v":1,"op":"model.profile","args":{"path":"folder"}}`,
	`{"v":1,"op":"monitor.save","args":{"monitor":999999,"path":"run.json"}}`,
}

// mutationSeeds are the requests of each operation.
func mutationSeeds(t *testing.T) [][]any {
	t.Helper()
	seeds := map[string][]any{}
	read := func(text []byte) {
		var seed any
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		require.NoError(t, d.Decode(&seed), "%s", text)
		request, _ := seed.(map[string]any)
		op, _ := request["op"].(string)
		seeds[op] = append(seeds[op], seed)
	}
	files, err := filepath.Glob("golden/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		for _, pair := range readGolden(t, file) {
			read(pair.Request)
		}
	}
	for _, text := range append(moreSeeds, `{"v":1,"op":"memory.open","args":{"trace":"`+goldenTrace(t)+`"}}`) {
		read([]byte(text))
	}
	for _, format := range []string{"csv", "jsonl", "chrome"} { // answers with an attachment, which no golden file holds
		read([]byte(`{"v":1,"op":"report.export","args":{"format":"` + format + `","sources":[{"name":"","run_log":` + goldenRunLog(t) + `}]}}`))
	}
	var each [][]any
	for _, op := range slices.Sorted(maps.Keys(seeds)) {
		each = append(each, seeds[op])
	}
	return each
}

var living = map[string]string{
	"monitor": `{"v":1,"op":"monitor.start","args":{"interval_ms":10,"library_path":"none.so"}}`,
	"job":     `{"v":1,"op":"scan.start","args":{"manifest":"list.jsonl","texts":true}}`,
	"opened":  `{"v":1,"op":"scan.open","args":{}}`,
	"listed":  `{"v":1,"op":"scan.start","args":{"manifest":"list.jsonl","list":true,"columns":["text"]}}`,
}

// alive gives a seed that names something unknown the handle of something that is there.
func alive(t *testing.T, seed any) any {
	t.Helper()
	request, _ := seed.(map[string]any)
	args, _ := request["args"].(map[string]any)
	op, _ := request["op"].(string)
	for name, kind := range map[string]string{"monitor": "monitor", "job": "job", "trace": "trace"} {
		if unknown, is := args[name].(json.Number); !is || unknown != "999999" {
			continue
		}
		if op == "scan.add" || op == "scan.end" {
			kind = "opened"
		} else if op == "scan.rows" {
			kind = "listed"
		}
		seed = copied(seed)
		seed.(map[string]any)["args"].(map[string]any)[name] = json.Number(fmt.Sprint(handleOf(t, kind)))
	}
	return seed
}

func handleOf(t *testing.T, kind string) (handle uint64) {
	t.Helper()
	request := living[kind]
	if kind == "trace" {
		request = `{"v":1,"op":"memory.open","args":{"trace":"` + goldenTrace(t) + `"}}`
	}
	var got struct {
		Result struct{ Monitor, Job, Trace uint64 }
	}
	answer := Call([]byte(request))
	require.NoError(t, json.Unmarshal(answer, &got), "%s", answer)
	handle = got.Result.Monitor + got.Result.Job + got.Result.Trace
	require.NotZero(t, handle, "%s: %s", kind, answer)
	if kind == "job" || kind == "listed" {
		Call(fmt.Appendf(nil, `{"v":1,"op":"scan.poll","args":{"job":%d,"wait_ms":1000}}`, handle))
	}
	return handle
}

// goldenTrace is a trace that can be opened.
func goldenTrace(t *testing.T) string {
	t.Helper()
	var request struct{ Args struct{ Trace string } }
	require.NoError(t, json.Unmarshal(readGolden(t, "golden/memory.simulate.json")[0].Request, &request))
	return request.Args.Trace
}

// goldenRunLog is a run log that holds together.
func goldenRunLog(t *testing.T) string {
	t.Helper()
	var request struct {
		Args struct {
			RunLog json.RawMessage `json:"run_log"`
		}
	}
	require.NoError(t, json.Unmarshal(readGolden(t, "golden/runlog.check.json")[0].Request, &request))
	return string(request.Args.RunLog)
}

type envelope struct {
	V      int             `json:"v"`
	OK     bool            `json:"ok"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    fault.Code `json:"code"`
		Message string     `json:"message"`
		Hint    string     `json:"hint"`
	} `json:"error"`
}

// checked sends a request and checks all that holds for every answer.
func checked(t *testing.T, number uint64, raw []byte) (got envelope) {
	t.Helper()
	shown := shownRequest{number, raw}
	watch := time.AfterFunc(longestRequest*2, func() { panic(shown.String() + " does not end") })
	defer watch.Stop()
	before, began := allocated(), time.Now()
	out := Call(raw)
	assert.Less(t, time.Since(began), longestRequest, shown)
	assert.Less(t, allocated()-before, uint64(mostAllocated), shown)
	require.NoError(t, fault.PoisonError(), shown)
	text, _, _ := bytes.Cut(out, []byte{0})
	assert.True(t, utf8.Valid(text), shown)
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	assert.NoError(t, d.Decode(&got), "%s: %s", shown, text)
	assert.True(t, json.Valid(text), shown)
	assert.Equal(t, EnvelopeVersion, got.V, shown)
	assert.Equal(t, got.OK, got.Error == nil, shown)
	assert.Equal(t, got.OK, got.Result != nil, shown)
	assert.NotRegexp(t, noNumber, string(got.Result), shown)
	if got.OK {
		assert.True(t, json.Valid(withoutAttachment(raw)), "%s is not JSON and was accepted", shown)
		return got
	}
	assert.NotContains(t, []fault.Code{fault.Internal, fault.Poisoned, ""}, got.Error.Code, "%s: %s", shown, text)
	assert.NotEmpty(t, got.Error.Message, shown)
	assert.NotContains(t, got.Error.Message+got.Error.Hint, "%!", shown)
	return got
}

type shownRequest struct {
	number uint64
	raw    []byte
}

func (r shownRequest) String() string { return fmt.Sprintf("request %d: %.3000q", r.number, r.raw) }

// noNumber finds what is not a number, also inside texts.
var noNumber = regexp.MustCompile(`\b(NaN|Inf|Infinity)\b`)

func withoutAttachment(raw []byte) []byte {
	text, _, _ := bytes.Cut(raw, []byte{0})
	return text
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

func count(answered map[string]*[2]int, raw []byte, ok bool) {
	var request struct {
		Op any `json:"op"`
	}
	if json.Unmarshal(withoutAttachment(raw), &request) != nil {
		return
	}
	op, _ := request.Op.(string)
	if answered[op] == nil {
		answered[op] = new([2]int)
	}
	if ok {
		answered[op][0]++
	} else {
		answered[op][1]++
	}
}

// finish asks a scan that was started for all that it has, and lets go of everything that lives.
func finish(t *testing.T, number uint64, raw []byte, answer envelope) {
	t.Helper()
	for _, job := range slices.Sorted(maps.Keys(scans.held)) {
		if answer.OK && strings.Contains(string(raw), `"scan.`) {
			for _, request := range []string{
				`{"v":1,"op":"scan.poll","args":{"job":%d,"wait_ms":1000}}`, `{"v":1,"op":"scan.result","args":{"job":%d}}`,
				`{"v":1,"op":"scan.clips","args":{"job":%d,"offset":0,"limit":100}}`, `{"v":1,"op":"scan.texts","args":{"job":%d,"offset":0,"limit":100}}`,
			} {
				checked(t, number, fmt.Appendf(nil, request, job))
			}
		}
		checked(t, number, fmt.Appendf(nil, `{"v":1,"op":"scan.cancel","args":{"job":%d}}`, job))
	}
	for _, handle := range slices.Sorted(maps.Keys(monitors.held)) {
		checked(t, number, fmt.Appendf(nil, `{"v":1,"op":"monitor.close","args":{"monitor":%d}}`, handle))
	}
	for _, handle := range slices.Sorted(maps.Keys(traces.held)) {
		traces.remove(handle)
	}
}
