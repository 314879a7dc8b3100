package view

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/profile"
)

// record is the record of a kind in testdata, as Python sends it.
func record(t testing.TB, kind string) []byte {
	raw, err := os.ReadFile("testdata/" + strings.ReplaceAll(kind, " ", "_") + ".json")
	require.NoError(t, err, "every kind has a record in testdata")
	return raw
}

func rendered(t testing.TB, kind, format string, raw []byte) Shown {
	answer, err := Render(Request{Kind: kind, Format: format, Record: raw})
	require.NoError(t, err, kind)
	return answer
}

// sound fails on HTML whose elements are not closed in order, and gives the names of its elements
// and its texts.
func sound(t testing.TB, page string) (elements map[string]int, text string) {
	page = strings.NewReplacer("<!DOCTYPE html>", "", `<meta charset="utf-8">`, "", `<meta name="viewport" content="width=device-width">`, "", "<br>", "", "<details open>", "<details>").Replace(page)
	decoder := xml.NewDecoder(strings.NewReader("<all>" + page + "</all>"))
	decoder.Entity = xml.HTMLEntity
	elements = map[string]int{}
	var said strings.Builder
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return elements, said.String()
		}
		require.NoError(t, err, "%.200s", page[max(0, int(decoder.InputOffset())-150):])
		switch found := token.(type) {
		case xml.StartElement:
			elements[found.Name.Local]++
			for _, a := range found.Attr {
				require.False(t, strings.HasPrefix(a.Name.Local, "on"), "a handler: %s", a.Name.Local)
				require.NotContains(t, a.Value, "javascript:")
			}
		case xml.CharData:
			said.Write(found)
		}
	}
}

// What each view must show: figures as text and as HTML, how many pictures, and figures of its short
// form; of the records in testdata.
var golden = map[string]struct {
	figures  []string
	pictures int
	brief    []string
}{
	"plan":           {[]string{"22 + 10 = 32", "per_device_train_batch_size=16", "from 3 of 19 s to 22 of 6.1 s, sized by manager.train", "11.9 of 15.0 GiB (79 %) on Tesla T4", "1.92× as long", "17.6 GiB", "12.75 GiB", "7.2 min", "90 % training, 7.5 % evaluation, 1 % checkpoints, 1.5 % start", "longer than 20 s: left out", "48 % slower", "gradient_checkpointing", "1.3× faster", "2 bad files left out"}, 2, []string{"\nOptimized Settings\n", "22 + 10 = 32", "11.9 of 15.0 GiB (79 %)", "3 epochs 22 min", "US$", "gradient_checkpointing=False"}},
	"hardware":       {[]string{"GPU 0", "GiB", "compute capability"}, 0, []string{"NVIDIA L4, 22.5 GiB", "CPU "}},
	"model":          {[]string{"M parameters", "optimizer state", "GiB"}, 0, []string{"M parameters"}},
	"dataset":        {[]string{"clips, ", " h, ", "median", "sample rates 16000 Hz", "padding in batches of", "random", "sorted"}, 5, []string{"clips by duration: ", "█", "padding in batches of"}},
	"box":            {[]string{"1 of 2 steps", "ended by an error"}, 0, nil},
	"memory":         {[]string{"8 × 10 s", "fits NVIDIA L4", "0.88 GiB", "activations", "at the peak: backward, aten.mm in layers.1", "layers.1"}, 2, []string{"fits NVIDIA L4", "held by ", "activations"}},
	"batch table":    {[]string{"longest, s", "× 4", "26.4 ✗", "does not fit Tesla T4 (15.00 GiB)", "11"}, 0, []string{"× 4", "26.4 ✗", "largest"}},
	"comparison":     {[]string{"openai/whisper-large-v3", "RTX 4090", "cheapest", "fastest", "T4 (12.8 GiB of 15.0 GiB to use): does not fit", "→ LoRA of rank 32", "1.59 (0.94–2.8)"}, 0, []string{"cheapest: ", "fastest: ", "RTX 4090", "3.62 (2.1–6.3)", "on which it does not fit"}},
	"by hand":        {[]string{"L4, 22.5 GiB: facebook/wav2vec2-xls-r-1b", "effective batch 32, 3 epochs", "8 × 4, bf16, checkpointing", "22.4 GiB, 100 %", "19.7 GiB, 131 %", "out of memory", "a run takes", "1.72× as long", "10 runs, $", "dollars (published): L4, 0.40 an hour and GPU", "clips (assumed): "}, 0, nil},
	"largest models": {[]string{"largest, fully: ", "largest, LoRA: ", "✓", "✗"}, 0, []string{"largest, fully: ", "✓"}},
	"benchmark":      {[]string{"3.00× your settings: batch 8 × 4, fp32", "200 samples/s instead of 66.7", "66.7 (64.1 to 68.7)", "waits for the data loader", "→ next: set bf16=True", "out of memory", "not tried", "92 %"}, 10, []string{"3.00× your settings: batch 8 × 4, fp32", "200 samples/s instead of 66.7"}},
	"run": {[]string{"steps in 10 min", "NVIDIA L4", "came true", "passed after", "18.7 GiB", "Over time", "this training 41 %", "/dev/shm", "container's limit",
		"training, step 39, rank 1, backward in encoder.layers.3: 22.50 GiB held of 23.00 GiB reserved", "predicted of 8 × 14.5 s", "+4.50 GiB", "−1.0 MiB", "activations and others", "nothing was predicted for it"}, 8, []string{"steps in 10 min", "→ "}},
	"run comparison": {[]string{"bf16 against base: ", "× steps/s", "which both made; bf16 made 1 to 16", "peak GPU memory", "training loss at step 8", "evaluation WER at the end",
		"Settings that differ", "gradient_accumulation_steps", "False"}, 2, []string{"bf16 against base: ", "× steps/s", "peak GPU memory"}},
	"panel":  {[]string{"Step 571 of 2400", "13.9 of 15.0 GiB", "93 %", "66 W · 74 °C", "57 %", "this training 41 %", "grows 38 MB/step", "→ something keeps a tensor"}, 1, nil},
	"screen": {[]string{"process 77: CPU 19 %", "20.0 GiB of 24.0 GiB, 83 %, headroom 5.0 GiB", "held back by heat", "container's limit"}, 0, nil},
}

func TestEveryViewShowsItsKeyFigures(t *testing.T) {
	for kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			want, known := golden[kind]
			require.True(t, known, "a new view: name its key figures here")
			raw := record(t, kind)
			text, card := rendered(t, kind, "text", raw).Text, rendered(t, kind, "html", raw).Text
			elements, said := sound(t, card)
			for _, figure := range want.figures {
				require.Contains(t, strings.Join(strings.Fields(text), " "), strings.Join(strings.Fields(figure), " "))
				require.Contains(t, said, figure)
			}
			require.Equal(t, want.pictures, strings.Count(card, `role="img"`))
			for _, forbidden := range []string{"script", "link", "img", "iframe", "object", "base"} {
				require.Zero(t, elements[forbidden])
			}
			require.NotContains(t, strings.ReplaceAll(card, "http://www.w3.org/2000/svg", ""), "http:")
			require.NotContains(t, text+card, "NaN")
			brief := rendered(t, kind, "brief", raw).Text
			for _, figure := range want.brief {
				require.Contains(t, "\n"+brief, figure)
			}
			if want.brief != nil {
				text += "\n" + brief
				require.Less(t, strings.Count(brief, "\n"), briefLines)
			}
			for line := range strings.Lines(text) {
				if kind != "box" { // lines as they are
					require.LessOrEqual(t, columns(strings.TrimRight(line, "\n")), defaultWidth, line)
				}
			}
			_, err := json.Marshal(rendered(t, kind, "charts", raw))
			require.NoError(t, err)
		})
	}
}

// markup is a text that would change a page or a terminal.
const markup = "\"'><script>alert(1)</script><img src=x onerror=x>\x1b[31m\x00\u2028\n=cmd()"

// rewritten is the record of a kind with its texts or its numbers replaced.
func rewritten[T, N any](t *testing.T, kind string, replacement N) []byte {
	var rewrite func(v any) any
	rewrite = func(v any) any {
		switch inner := v.(type) {
		case map[string]any:
			for key, value := range inner {
				inner[key] = rewrite(value)
			}
		case []any:
			for i, value := range inner {
				inner[i] = rewrite(value)
			}
		case T:
			return replacement
		}
		return v
	}
	var v any
	require.NoError(t, json.Unmarshal(record(t, kind), &v))
	raw, err := json.Marshal(rewrite(v))
	require.NoError(t, err)
	return raw
}

func TestTextsChangeNoView(t *testing.T) {
	for kind := range kinds {
		for _, text := range []string{markup, strings.Repeat("long ", 2000), strings.Repeat("x", 10_000), ""} {
			raw := rewritten[string](t, kind, text)
			for _, format := range []string{"text", "brief", "html", "page", "title"} {
				got := rendered(t, kind, format, raw).Text
				if kind != "screen" { // which colours by escapes where it is asked to
					require.NotContains(t, got, "\x1b", "%s as %s", kind, format)
				}
				require.NotContains(t, got, "\x00", "%s as %s", kind, format)
				require.NotContains(t, got, "\u2028", "%s as %s", kind, format)
				if format == "html" || format == "page" {
					elements, _ := sound(t, got)
					require.Zero(t, elements["script"]+elements["img"], "%s as %s", kind, format)
				}
			}
		}
	}
}

func TestAnyNumbersCanBeShown(t *testing.T) {
	for kind := range kinds {
		for _, number := range []json.Number{"0", "-1", "1", "100000", "9007199254740993", "1e308", "-1e308", "1e-308", "0.5"} {
			raw := rewritten[float64](t, kind, number)
			for _, format := range []string{"text", "html", "charts"} {
				// or an error: half a clip is none
				answer, err := Render(Request{Kind: kind, Format: format, Record: raw})
				if err == nil && format == "html" {
					sound(t, answer.Text)
					require.NotContains(t, answer.Text, "NaN%")
				}
			}
		}
	}
}

func TestAnyRecordGivesAnAnswer(t *testing.T) {
	for kind := range kinds {
		for _, raw := range []string{"{}", `{"unknown":1}`} {
			for _, format := range []string{"text", "html", "charts"} {
				_, err := Render(Request{Kind: kind, Format: format, Record: []byte(raw)})
				require.NoError(t, err, "%s of %s as %s", kind, raw, format)
			}
		}
		for _, raw := range []string{"", "[]", "5", `"text"`, "{"} {
			_, err := Render(Request{Kind: kind, Format: "text", Record: []byte(raw)})
			require.Error(t, err, "%s of %s", kind, raw)
		}
	}
}

func TestRulesReachNothingButCards(t *testing.T) {
	_, err := looks()
	require.NoError(t, err)
	card := rendered(t, "box", "html", record(t, "box")).Text
	style := card[strings.Index(card, "<style>")+7 : strings.Index(card, "</style>")]
	for _, theme := range []string{"prefers-color-scheme:dark", `[data-jp-theme-light="false"]`, "html[theme=dark]", ".vscode-dark", "@media print"} {
		require.Contains(t, style, theme)
	}
	style = regexp.MustCompile(`@media [^{]*\{`).ReplaceAllString(style, "")
	for _, rule := range strings.Split(style, "}") {
		selectors, _, found := strings.Cut(rule, "{")
		if !found {
			continue
		}
		for _, selector := range strings.Split(selectors, ",") {
			require.Contains(t, selector, cardClass)
		}
	}
}

func TestCSVIsATableWithoutFormulas(t *testing.T) {
	table := rendered(t, "benchmark", "csv", record(t, "benchmark")).Text
	lines := strings.Split(strings.TrimSpace(table), "\n")
	require.Regexp(t, "^what,.*,clips_per_s,clips_per_s_count,clips_per_s_high,clips_per_s_low,", lines[0])
	require.Len(t, lines, 1+2+4+4+1)
	raw := bytes.ReplaceAll(record(t, "benchmark"), []byte(`"precision"`), []byte(`"=cmd()"`))
	require.Contains(t, rendered(t, "benchmark", "csv", raw).Text, "'=cmd()")
}

func FuzzRender(f *testing.F) {
	for kind := range kinds {
		f.Add(kind, record(f, kind))
	}
	f.Fuzz(func(t *testing.T, kind string, raw []byte) {
		for _, format := range []string{"text", "html"} {
			_, _ = Render(Request{Kind: kind, Format: format, Record: raw})
		}
	})
}

func TestListsStayShort(t *testing.T) {
	rates := map[string]int{}
	var gpu gpuReading
	processes := strings.Repeat(`{"pid": 1, "name": "python"},`, 5000)
	require.NoError(t, json.Unmarshal([]byte(`{"processes": [`+strings.TrimSuffix(processes, ",")+`]}`), &gpu))
	for i := range 5000 {
		rates[strconv.Itoa(8000+i)] = 1
	}
	require.Regexp(t, "^10000 Hz ×1, .* Hz ×1 and 4992 more$", mix(rates, " Hz"))
	require.Len(t, gpu.Processes, 5000)
	for _, line := range gpu.tall(0, 10) {
		require.Less(t, len(line.Text), 300)
	}
}

// ofSpeech are words that do not belong into a view of texts.
var ofSpeech = regexp.MustCompile(`(?i)\b(clips?|audio|durations?|sample rates?|codecs?)\b`)

// asTexts is a record of testdata that says that its rows are texts, wherever it has rows.
func asTexts(t *testing.T, kind string) []byte {
	var told map[string]any
	require.NoError(t, json.Unmarshal(record(t, kind), &told))
	told["row_kind"] = "texts"
	for _, inside := range []string{"config", "dataset", "setting"} {
		if part, ok := told[inside].(map[string]any); ok {
			part["row_kind"] = "texts"
			delete(part, "source")
			delete(part, "warnings")
			delete(part, "bad_files")
			delete(part, "alternatives")
		}
	}
	cases, _ := told["cases"].([]any)
	for _, c := range cases {
		part := c.(map[string]any)
		part["row_kind"] = "texts"
		delete(part, "origins")
	}
	for _, spoken := range []string{"decisions", "cautions", "bad_files", "source", "warnings", "shape_words", "assumptions", "notes", "findings", "bottleneck", "next_change", "options"} {
		delete(told, spoken) // texts of the record's own
	}
	raw, err := json.Marshal(told)
	require.NoError(t, err)
	return raw
}

func TestViewsOfTextsCountTokens(t *testing.T) {
	for kind, figure := range map[string]string{"dataset": " tokens", "plan": "Texts a step ", "comparison": " tokens; effective batch", "by hand": " tokens; effective batch", "benchmark": " texts"} {
		raw := asTexts(t, kind)
		for _, format := range []string{"text", "brief", "html", "page"} {
			shown := rendered(t, kind, format, raw).Text
			if format == "html" || format == "page" {
				_, shown = sound(t, regexp.MustCompile(`(?s)<style.*?</style>`).ReplaceAllString(shown, ""))
			}
			require.Empty(t, ofSpeech.FindAllString(shown, -1), "%s as %s: %s", kind, format, shown)
			if format == "text" {
				require.Contains(t, strings.ReplaceAll(shown, "\n", " "), figure, kind)
			}
		}
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

// plans are the record in testdata, changed to what users plan.
var plans = map[string]func(c *profile.Config){
	"several GPUs": func(*profile.Config) {},
	"one clip at once": func(c *profile.Config) {
		c.Devices, c.DeviceCount, c.LengthHandling = nil, 1, "random"
		c.PerDeviceTrainBatchSize, c.GradientAccumulationSteps, c.MicroBatchSize = 1, 32, 1
		c.MicroBatches = []profile.MicroBatch{{Clips: 1, Seconds: 20}, {Clips: 11, Seconds: 1.73}}
		c.FP16, c.BF16, c.TF32, c.GradientCheckpointing, c.EveryNLayers = false, true, true, true, 8
		c.ByHand.What = "1 × 32, bf16, with offloaded checkpointing of every 8th layer, random order"
	},
	"one size": func(c *profile.Config) {
		*c.ByHand.Speed, c.MicroBatching = 1, "fixed"
		c.PerDeviceTrainBatchSize, c.GradientAccumulationSteps = 1, 1
		c.MicroBatches = []profile.MicroBatch{{Clips: 1, Seconds: 30}}
	},
	"a CPU": func(c *profile.Config) {
		c.GPUName, c.GPUMemoryBytes, c.Devices, c.Times, c.DeviceCount = "", nil, nil, nil, 1
		c.FP16, c.ByHand.EpochHours = false, nil
	},
	"long names": func(c *profile.Config) {
		c.GPUName, c.LoRARank = strings.Repeat("NVIDIA RTX PRO 6000 Blackwell ", 3), 32
		c.Times.RunHours = profile.Range{Low: 12345, Likely: 23456, High: 34567}
	},
	"no search": func(c *profile.Config) { c.ByHand, c.Times, c.MicroBatches = nil, nil, nil },
}

// TestTheFirstScreenOfAPlanFitsATerminal: 80 columns, nothing cut, the step and its micro-batches
// instead of a batch size.
func TestTheFirstScreenOfAPlanFitsATerminal(t *testing.T) {
	for title, change := range plans {
		t.Run(title, func(t *testing.T) {
			var r planRecord
			require.NoError(t, json.Unmarshal(record(t, "plan"), &r))
			change(&r.Config)
			lines := plan(r).brief(terminalWidth)
			require.LessOrEqual(t, len(lines), briefLines)
			for _, line := range lines {
				require.LessOrEqual(t, columns(line), terminalWidth, line)
			}
			shown := strings.Join(strings.Fields(strings.Join(lines, " ")), " ")
			require.NotContains(t, shown, "…")
			require.NotRegexp(t, `(?i)batch size\W+1\b`, shown)
			require.Contains(t, shown, fmt.Sprintf("(per_device_train_batch_size=%d, gradient_accumulation_steps=%d",
				r.Config.PerDeviceTrainBatchSize, r.Config.GradientAccumulationSteps))
			for _, setting := range r.settings() {
				require.Contains(t, shown, setting[0]+" "+setting[1])
			}
			_, card := sound(t, rendered(t, "plan", "html", record(t, "plan")).Text)
			require.Contains(t, card, "Optimized Settings")
		})
	}
}

// TestSettingsAreTheTrainersArguments: those of a Trainer without the guard, and what the guard
// makes of them.
func TestSettingsAreTheTrainersArguments(t *testing.T) {
	c := profile.Config{PerDeviceTrainBatchSize: 1, GradientAccumulationSteps: 32}
	require.Equal(t, "off (gradient_checkpointing=False)", checkpointing(c))
	c.Unguarded = &profile.Unguarded{PerDeviceTrainBatchSize: 4, GradientAccumulationSteps: 8, GradientCheckpointing: true}
	require.Equal(t, "on (gradient_checkpointing=True); manager.train: off", checkpointing(c))
	require.Equal(t, "32 (per_device_train_batch_size=4, gradient_accumulation_steps=8)", planRecord{Config: c}.step())
	speed := 1.001
	c.ByHand = &profile.Alternative{What: "4 × 8, bf16", Speed: &speed}
	require.Equal(t, "4 × 8, bf16: the same time", byHand(c))
}

func TestSparklineNamesTheHighestValue(t *testing.T) {
	c := curves{Title: "WER", Top: 1.06, X: axis{High: 2},
		Series: []Series{{Pieces: [][][2]float64{{{0, 1}, {1, 0.5}}}}}}
	line := c.lines(0)[0]
	require.Contains(t, line, "█")
	require.True(t, strings.HasSuffix(line, "| 1 "), line)
}

func TestHeadlineSaysHowMuchOfTheTimeWasTraining(t *testing.T) {
	rate, trained := 2.5, 12.0
	r := RunFigures{Duration: 15}
	r.Steps.Train, r.Steps.StepsPerS, r.Steps.TrainS = 30, &rate, &trained
	require.Contains(t, r.Headline(), "30 steps in 15 s on")
	require.Contains(t, r.Headline(), "2.5 steps/s in 80 % of the time")
}

func TestRunsWithStepsOfOtherSizesAreComparedByClips(t *testing.T) {
	steps, clips := 2.9, 0.72
	r := RunComparison{A: ComparedRun{Name: "a"}, B: ComparedRun{Name: "b"}, Figures: []ComparedFigure{
		{Key: "steps_per_s", Name: "steps/s", Ratio: &steps}, {Key: "clips_per_s", Name: "clips/s", Ratio: &clips}}}
	require.Equal(t, "b against a: 0.72 × clips/s", r.headline())
	clips = 2.9
	require.Equal(t, "b against a: 2.90 × steps/s", r.headline())
}
