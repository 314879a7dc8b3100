package api

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math"
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

// Requests mutated from the golden ones, through the entry of ac_call. More of them: go test
// ./core/api -run Mutated -mutations 100000 -timeout 2h. One again: -mutations 1 -first NUMBER.
var (
	mutations = flag.Int("mutations", 8000, "how many mutated requests")
	first     = flag.Uint64("first", 0, "the number of the first mutated request")
)

const (
	// a bound for loops that do not end, also under the race detector
	longestRequest = 50 * time.Second
	mostAllocated  = 1 << 30 // bytes, in all, by one request
)

func TestMutatedRequestsGetAWellFormedAnswer(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	inFolderOfOddFiles(t)
	seeds := mutationSeeds(t)
	operations := slices.Sorted(maps.Keys(seeds))
	answered := map[string]map[bool]int{}
	send := func(number uint64, op string, raw []byte) {
		answer := checked(t, number, raw)
		if answered[op] == nil {
			answered[op] = map[bool]int{}
		}
		answered[op][answer.OK]++
		finish(t, number, raw, answer)
	}
	for number := *first; number < *first+uint64(*mutations); number++ {
		m := mutator{rand.New(rand.NewPCG(number, 0))}
		op := operations[m.IntN(len(operations))]
		send(number, op, m.request(t, seeds[op][m.IntN(len(seeds[op]))]))
	}
	if *mutations < 8000 || *first != 0 {
		return
	}
	// Of some operations hardly any mutated request is valid: whether one is would be chance.
	for _, op := range operations {
		for _, seed := range seeds[op] {
			request := decoded(t, seed)
			useHandles(t, request)
			raw, err := json.Marshal(request)
			require.NoError(t, err)
			send(0, op, raw)
		}
	}
	for name := range table {
		require.Positive(t, answered[name][false], "%s was never refused", name)
		require.Positive(t, answered[name][true], "%s never succeeded", name)
	}
}

// mutator changes requests. What it does follows from its random numbers alone.
type mutator struct{ *rand.Rand }

// request is a seed, often with some changes, few more often than many.
func (m mutator) request(t *testing.T, seed []byte) []byte {
	request := decoded(t, seed)
	useHandles(t, request)
	var raw []string
	for range (1 + m.IntN(2+m.IntN(4))) * min(1, m.IntN(8)) {
		slots := slotsOf(request, nil)
		if len(slots) == 0 {
			break
		}
		chosen := slots[m.IntN(len(slots))]
		switch {
		case addresses[chosen.name]: // memory of the caller, who has none here
		case m.IntN(4) == 0:
			chosen.set(nil)
		case m.IntN(3) == 0:
			chosen.set(m.like(chosen.value))
		default:
			chosen.set(fmt.Sprintf("literal %d", len(raw)))
			raw = append(raw, literals[m.IntN(len(literals))])
		}
	}
	text, err := json.Marshal(request)
	require.NoError(t, err)
	for i, literal := range raw {
		text = bytes.Replace(text, fmt.Appendf(nil, `"literal %d"`, i), []byte(literal), 1)
	}
	return m.bytes(text)
}

// literals replace a value as they are written here; the last ones are no JSON.
var literals = []string{
	"null", "true", "false", `""`, `"x"`, `"é\u0000"`, `"\ud800"`, "[]", "{}", "[[]]", "[null]", "[{}]", `{"x":1}`, "0", "-0", "-0.0", "1", "-1", "2", "3",
	"0.5", "-0.5", "1e-9", "1e-320", "1e9", "1e15", "1e30", "1e300", "1.7976931348623157e308", "-1e308", "65536", "2147483647", "2147483648", "-2147483648",
	"4294967296", "1099511627776", "9007199254740993", "9223372036854775807", "-9223372036854775808", "18446744073709551615", "99999999999999999999",
	`"zero"`, `"pipe"`, `"folder"`, `"text"`, `"1e999"`, "1e999", "NaN", "-Infinity", "01", "1.", "0x1p4", "'x'", "tru", "{", "}", "]",
}

// bytes sometimes changes a request's text, or attaches bytes to it.
func (m mutator) bytes(text []byte) []byte {
	switch m.IntN(12) {
	case 0:
		return text[:m.IntN(len(text)+1)]
	case 1:
		return append(text, []string{"]", "}", ",", "{}", "\n\t ", "x", "\xff", "]]]]"}[m.IntN(8)]...)
	case 2:
		text = append(text, 0)
		for range m.IntN(12) {
			number := []float64{1, 2.5, 30, 0, -1, 1e300, math.NaN(), math.Inf(1)}[min(m.IntN(60), m.IntN(8))]
			text = binary.LittleEndian.AppendUint64(text, math.Float64bits(number))
		}
		return append(text, make([]byte, m.IntN(50)/42)...)
	case 3:
		if !bytes.Contains(text, []byte(`"buffer"`)) && !bytes.Contains(text, []byte(`"arrow"`)) {
			text[m.IntN(len(text))] = byte(m.IntN(256))
		}
	case 4:
		nested := bytes.Repeat([]byte{"[{"[m.IntN(2)]}, 1<<m.IntN(18))
		return slices.Concat([]byte(`{"v":1,"op":"plan.check","args":`), nested, []byte("}"))
	}
	return text
}

// slot is a value inside a request; setting it to nil takes it away.
type slot struct {
	name  string
	value any
	set   func(value any)
}

func slotsOf(value any, slots []slot) []slot {
	switch v := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			slots = append(slots, slot{name, v[name], func(value any) {
				if v[name] = value; value == nil {
					delete(v, name)
				}
			}})
			if name != "v" && name != "op" {
				slots = slotsOf(v[name], slots)
			}
		}
	case []any:
		for i := range v {
			slots = slotsOf(v[i], append(slots, slot{"", v[i], func(value any) { v[i] = value }}))
		}
	}
	return slots
}

// like is another value of the same type.
func (m mutator) like(value any) any {
	switch v := value.(type) {
	case json.Number:
		x, _ := v.Float64()
		x = []float64{x + 1, x - 1, -x, x * 2, x * 1000, x * 1e6, x / 3, x / 1e6, math.Floor(x / 2), x * 1e18}[m.IntN(10)]
		if text, err := json.Marshal(x); err == nil {
			return json.Number(text)
		}
	case string:
		return []string{v + "x", strings.ToUpper(v), strings.Repeat(v, 1+100_000/(1+len(v))), v[:len(v)/2]}[m.IntN(4)]
	case []any:
		return [][]any{v[:len(v)/2], {}, slices.Repeat(v, 2), slices.Repeat(v, 1+1000/(1+len(v)))}[m.IntN(4)]
	case bool:
		return !v
	}
	return value
}

// addresses are the fields that hold addresses of buffers, where any number is valid.
var addresses = map[string]bool{"address": true, "indices": true, "valid": true, "offsets": true, "data": true, "buffer": true, "arrow": true}

func decoded(t *testing.T, text []byte) map[string]any {
	t.Helper()
	var value any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	require.NoError(t, d.Decode(&value), "%s", text)
	request, _ := value.(map[string]any)
	return request
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
	`{"v":1,"op":"scan.start","args":{"manifest":"list.jsonl","texts":true,"text_field":"text"}}`,
	`{"v":1,"op":"scan.start","args":{"manifest":"list.jsonl","list":true,"audio_field":"path","columns":["split"]}}`,
	`{"v":1,"op":"scan.start","args":{"folder":"."}}`,
	`{"v":1,"op":"scan.add","args":{"job":999999,"rows":[{"path":"clip.wav"},{"path":"a.wav","duration_s":2.5},{"path":"b.wav","error":"gone"}]}}`,
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
func mutationSeeds(t *testing.T) map[string][][]byte {
	t.Helper()
	files, err := filepath.Glob("golden/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var texts []string
	for _, file := range files {
		for _, pair := range readGolden(t, file) {
			texts = append(texts, string(pair.Request))
		}
	}
	texts = append(append(texts, moreSeeds...), `{"v":1,"op":"memory.open","args":{"trace":"`+goldenTrace(t)+`"}}`)
	for _, format := range []string{"csv", "jsonl", "chrome"} {
		// answers with an attachment, which no golden file holds
		texts = append(texts, `{"v":1,"op":"report.export","args":{"format":"`+format+`","sources":[{"name":"","run_log":`+goldenRunLog(t)+`}]}}`)
	}
	seeds := map[string][][]byte{}
	for _, text := range texts {
		if op, is := decoded(t, []byte(text))["op"].(string); is {
			seeds[op] = append(seeds[op], []byte(text))
		}
	}
	return seeds
}

var living = map[string]string{
	"monitor": `{"v":1,"op":"monitor.start","args":{"interval_ms":10,"library_path":"none.so"}}`,
	"job":     `{"v":1,"op":"scan.start","args":{"manifest":"list.jsonl","texts":true}}`,
	"opened":  `{"v":1,"op":"scan.open","args":{}}`,
	"listed":  `{"v":1,"op":"scan.start","args":{"manifest":"list.jsonl","list":true,"columns":["text"]}}`,
}

// useHandles returns a request that names something unknown the handle of something that exists.
func useHandles(t *testing.T, request map[string]any) {
	t.Helper()
	args, _ := request["args"].(map[string]any)
	op, _ := request["op"].(string)
	for _, name := range []string{"monitor", "job", "trace"} {
		if unknown, is := args[name].(json.Number); !is || unknown != "999999" {
			continue
		}
		kind := name
		if op == "scan.add" || op == "scan.end" {
			kind = "opened"
		} else if op == "scan.rows" {
			kind = "listed"
		}
		args[name] = json.Number(fmt.Sprint(handleOf(t, kind)))
	}
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
