package dataset

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// listed reads a manifest of this name and content and shows its entries: the path within its
// folder, or "line: reason".
func listed(t *testing.T, name, content string) ([]string, error) {
	t.Helper()
	folder := t.TempDir()
	path := filepath.Join(folder, name)
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	entries, _, err := readManifest(context.Background(), path, Request{})
	var all []string
	for _, e := range entries {
		if e.stray {
			all = append(all, strings.TrimPrefix(e.clip.Path, path+":")+": "+e.clip.Error)
		} else {
			all = append(all, strings.TrimPrefix(e.path, folder+"/"))
		}
	}
	return all, err
}

func TestManifests(t *testing.T) {
	cases := []struct {
		name, content string
		want          []string
	}{
		{"nemo.json", `{"audio_filepath": "a.wav", "duration": 1.2, "text": "hi"}` + "\n" + `{"audio_filepath": "/abs/b.wav"}`, []string{"a.wav", "/abs/b.wav"}},
		{"m.jsonl", "\xef\xbb\xbf{\"path\":\"a.wav\"}\r\n\r\n  \n{\"file\":\"sub/b.wav\"}\r\n", []string{"a.wav", "sub/b.wav"}},
		{"first.ndjson", `{"path":"p.wav","audio":"a.wav","Filename":"f.wav"}`, []string{"a.wav"}},
		{"null.jsonl", `{"audio":null,"path":"p.wav"}`, []string{"p.wav"}},
		{"escapes.jsonl", `{"path":"\u00e4 \"x\".wav"}`, []string{`ä "x".wav`}},
		{"bad.jsonl", "{\"path\":\"a.wav\"}\nnot json\n{\"path\":3}\n{\"text\":\"x\"}\n{\"path\":\"\"}\n[1]\n{\"path\":\"b.wav\"}", []string{
			"a.wav", "2: not a JSON object", "3: its path is not text: 3",
			"4: has no field with a path, called audio_filepath, audio, path", `5: its path is not text: ""`, "6: not a JSON object", "b.wav"}},
		{"m.csv", "id,path,text\n1,a.wav,hi\n2,\"b, c.wav\",\"he said \"\"no\"\"\nand left\"\n\n3\n4,d.wav,x,y\n", []string{"a.wav", "b, c.wav", "6: has no path in column 2 of 1", "d.wav"}},
		{"crlf.csv", "\xef\xbb\xbfFile\r\na.wav\r\n", []string{"a.wav"}},
		{"quotes.csv", "path,text\na.wav,5\" disk\nb.wav,ok\n", []string{"a.wav", "b.wav"}},
		{"array.json", ` [{"path":"a.wav"},
{"path":3},{"file":"b.wav"}] `, []string{"a.wav", "2: its path is not text: 3", "b.wav"}},
		{"semicolons.csv", "id;path\n1;a.wav", []string{"a.wav"}},
		{"open_quote.csv", "path\n\"x\ny\nw", []string{`"x`, "y", "w"}},
		{"common_voice.tsv", "client_id\tpath\tsentence\nx\ta.mp3\t\"Hello\" he said\ny\tb.mp3\tit's 5\" wide\nz\n", []string{"a.mp3", "b.mp3", "4: has no path in column 2 of 1"}},
		{"quoted.tsv", "path\r\n\"a \"\"b\"\".wav\"\r\n", []string{`a "b".wav`}},
		{"up.csv", "path\n../x.wav\n./y.wav\n", []string{"../x.wav", "y.wav"}},
		{"only_header.csv", "path\n", nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := listed(t, c.name, c.content)
			require.NoError(t, err)
			for i, w := range c.want {
				if strings.HasPrefix(w, "../") {
					got[i] = "../" + filepath.Base(got[i])
				}
			}
			assert.Equal(t, c.want, got)
		})
	}
}

func TestRefusedManifests(t *testing.T) {
	cases := []struct {
		name, content string
		code          fault.Code
		texts         []string
	}{
		{"m.xml", "a.wav", fault.Unsupported, []string{"none of the known extensions", ".jsonl"}},
		{"array.json", ` [{"path":"a.wav"}`, fault.Corrupt, []string{"JSON array cannot be read after row 1", "one JSON object a line"}},
		{"more.json", `[{"path":"a.wav"}] {"path":"b.wav"}`, fault.Corrupt, []string{"JSON array cannot be read after row 1"}},
		{"huge.json", `[{"path":"` + strings.Repeat("x", 2*maxLine) + `"}]`, fault.Corrupt, []string{"JSON array cannot be read after row 0"}},
		{"macintosh.csv", "path\ra.wav\rb.wav\r", fault.Unsupported, []string{"CR alone"}},
		{"windows.csv", "path,text\na.wav,caf\xe9\n", fault.Corrupt, []string{"line 2: the text is not UTF-8 (byte 0xe9)", "iconv"}},
		{"windows.jsonl", "{\"path\":\"a.wav\",\"text\":\"ok\"}\n{\"path\":\"a.wav\",\"text\":\"caf\xe9\"}\n", fault.Corrupt, []string{"line 2: the text is not UTF-8"}},
		{"long.csv", "path\na.wav\n" + strings.Repeat("z", maxLine+1) + "\n", fault.Corrupt, []string{"line 3 is longer than 16 MiB"}},
		{"utf16.csv", "\xff\xfep\x00", fault.Unsupported, []string{"UTF-16"}},
		{"none.jsonl", `{"sound":"a.wav","text":"x"}`, fault.InvalidArgument, []string{`columns found: "sound", "text"`, "audio_filepath"}},
		{"none.csv", "id;sound\n1;a.wav", fault.InvalidArgument, []string{`columns found: "id", "sound"`}},
		{"none.tsv", "id,path\n1,a.wav", fault.InvalidArgument, []string{`columns found: "id,path"`}},
		{"headless.csv", "headless.csv,1.5,hello\n", fault.InvalidArgument, []string{`has no header: its first line has the file "headless.csv" in 3 columns`}},
		{"binary.jsonl", strings.Repeat("\x00\x01\n", 2000), fault.Corrupt, []string{"first 1000 lines are bad", "not a JSON object"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := listed(t, c.name, c.content)
			isFault(t, err, c.code, append(c.texts, c.name)...)
		})
	}
	for _, missing := range []string{"/nowhere/m.csv", ""} {
		_, _, err := readManifest(context.Background(), missing, Request{})
		require.Error(t, err)
	}
	pipe := filepath.Join(t.TempDir(), "pipe.csv")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	_, _, err := readManifest(context.Background(), pipe, Request{})
	isFault(t, err, fault.NotFound, "not a regular file")
}

func TestLongAndDeepLines(t *testing.T) {
	long := `{"path":"a.wav","text":"` + strings.Repeat("x", 1<<20) + `"}`
	deep := `{"path":` + strings.Repeat("[", 4<<20)
	got, err := listed(t, "m.jsonl", strings.Join([]string{long, deep, `{"path":"c.wav"}`}, "\n"))
	require.NoError(t, err)
	assert.Equal(t, []string{"a.wav", "2: not a JSON object", "c.wav"}, got)
}

func TestManifestScan(t *testing.T) {
	root := tree(t, map[string][]byte{"wavs/a.wav": wavOf(16000), "list.csv": []byte("audio,text\nwavs/a.wav,x\nwavs/b.wav,y\nwavs/a.wav,z\n,\n")})
	result := scan(t, Request{Manifest: root + "/list.csv"})
	assert.Equal(t, []string{"wavs/a.wav", "wavs/b.wav", "wavs/a.wav", "list.csv:5"}, names(result.Clips, root))
	assert.Equal(t, 2, result.Profile.MeasuredCount)
	one := 1
	sampled := scan(t, Request{Manifest: root + "/list.csv", SampleSize: &one, AllowEmpty: true}).Profile
	assert.Contains(t, fmt.Sprint(sampled.BadFiles), "list.csv:5", "bad lines are always told")
}

func FuzzManifest(f *testing.F) {
	for _, s := range []string{"path\na.wav\n", "{\"path\":\"a\"}\n{", "\xef\xbb\xbf", "\"", "path\t\"\n\"\"\t", "\xff\xfe"} {
		f.Add(uint8(0), []byte(s))
		f.Add(uint8(1), []byte(s))
		f.Add(uint8(2), []byte(s))
	}
	f.Fuzz(func(t *testing.T, kind uint8, b []byte) {
		path := filepath.Join(t.TempDir(), "m"+[]string{".jsonl", ".csv", ".tsv"}[kind%3])
		require.NoError(t, os.WriteFile(path, b, 0o600))
		entries, _, err := readManifest(context.Background(), path, Request{})
		if err != nil {
			assert.NotEqual(t, fault.Internal, fault.From(err).Code)
			return
		}
		assert.LessOrEqual(t, len(entries), bytes.Count(b, []byte("\n"))+1)
		for _, e := range entries {
			assert.True(t, e.stray && e.clip.Error != "" || !e.stray && filepath.IsAbs(e.path))
		}
	})
}

func gzipped(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

// told shows every clip of a scan: "name seconds [claimed] [said]", or "name: error".
func told(result Result, root string) (all []string) {
	for i := range result.Clips.Len() {
		c := result.Clips.At(i)
		line := strings.TrimPrefix(c.Path, root+"/")
		if c.Error != "" {
			all = append(all, line+": "+c.Error)
			continue
		}
		line += fmt.Sprintf(" %.3f", *c.DurationS)
		if c.ClaimedS != nil {
			line += fmt.Sprintf(" of %.3f", *c.ClaimedS)
		}
		if c.Method == "given" {
			line += " given"
		}
		if result.Texts != nil && result.Texts[i] != nil {
			line += fmt.Sprintf(" %q", *result.Texts[i])
		}
		all = append(all, line)
	}
	return all
}

func TestKindsOfManifests(t *testing.T) {
	recording := `"recording":{"id":"r","sources":[{"type":"file","channels":[0],"source":"a.wav"}],"sampling_rate":16000,"duration":2.0`
	cases := []struct {
		name  string
		files map[string]string
		list  string // of files; "" for the folder
		want  []string
	}{
		{"NeMo", map[string]string{"m.json": `{"audio_filepath":"a.wav","offset":0.5,"duration":1.0,"text":"one"}
{"audio_filepath":"a.wav","offset":1.5,"duration":1.0,"text":"two"}
{"audio_filepath":"a.wav","offset":2.5,"duration":1.0,"text":"three"}
{"audio_filepath":"a.wav","duration":1.25}
{"audio_filepath":"a.wav","duration":2.01,"text":null}
{"audio_filepath":"a.wav","duration":7,"text":""}
{"audio_filepath":"a.wav","offset":"0.25","duration":null}
{"audio_filepath":"a.wav","offset":-1,"duration":1}
{"audio_filepath":"a.wav","offset":"x","duration":1}
{"audio_filepath":"gone.wav","offset":0,"duration":1}`}, "m.json", []string{
			`a.wav 1.000 "one"`, `a.wav 0.500 of 1.000 "two"`, "a.wav: the row starts at 2.500 s, but the file ends at 2.000 s", "a.wav 1.250",
			"a.wav 2.000", `a.wav 2.000 of 7.000 ""`, "a.wav 1.750", "m.json:8: a.wav: -1 is not a number of seconds",
			`m.json:9: a.wav: "x" is not a number of seconds`, "gone.wav: no such file"}},
		{"a duration that only describes", map[string]string{"m.jsonl": `{"path":"a.wav","duration":1}`}, "m.jsonl", []string{"a.wav 2.000"}},
		{"pieces in CSV", map[string]string{"m.csv": "wav,offset,duration,wrd\na.wav,0.5,1,hi\na.wav,,,\na.wav,0,,x\na.wav,nan,1,x\n"}, "m.csv", []string{
			`a.wav 1.000 "hi"`, `a.wav 2.000 ""`, `a.wav 2.000 "x"`, "m.csv:5: a.wav: nan is not a number of seconds"}},
		{"Common Voice", map[string]string{"train.tsv": "client_id\tpath\tsentence\nx\tc.wav\tHallo\n", "clips/c.wav": "wav"}, "train.tsv", []string{`clips/c.wav 1.000 "Hallo"`}},
		{"fairseq", map[string]string{"train.tsv": "ROOT/clips\nc.wav\t16000\n", "clips/c.wav": "wav"}, "train.tsv", []string{"clips/c.wav 1.000"}},
		{"no header", map[string]string{"m.csv": "a.wav,Yes\nb.wav,\"No, no\"\n", "b.wav": "wav"}, "m.csv", []string{`a.wav 2.000 "Yes"`, `b.wav 1.000 "No, no"`}},
		{"a list", map[string]string{"l.txt": "a.wav\n\n b c.wav \nutt a.wav 1200 hello\nnope\n", "b c.wav": "wav"}, "l.txt", []string{"a.wav 2.000", "b c.wav 1.000", "a.wav 2.000", "nope: no such file"}},
		{"packed", map[string]string{"m.csv.gz": "path,sentence\na.wav,x\n"}, "m.csv.gz", []string{`a.wav 2.000 "x"`}},
		{"Kaldi", map[string]string{"wav.scp": "u1 a.wav\nu2\tsph2pipe -f wav /x.sph |\nu3 rm -rf ROOT |\nu4\nu5 -\nu6 w.ark:5\nu7 w.ark:6\nu8 gone.ark:5\nu9 cat a.wav |\nu10 flac -c -d -s a.wav|\n",
			"utt2dur": "u1 9\nu2 1.5\n", "text": "u1 one two\nu6 six", "w.ark": "ARK"}, "", []string{
			`a.wav 2.000 "one two"`, "u2 1.500 given", "wav.scp:3: u3: is a command, which is not run, and utt2dur does not have it (utils/data/get_utt2dur.sh makes it)",
			`wav.scp:4: has no path after the name of its recording`, `wav.scp:5: u5: standard input and output are not files`, `w.ark:5 1.000 "six"`, `w.ark:6: is not audio: its content is of no known format`, "gone.ark:5: no such file", "a.wav 2.000", "a.wav 2.000"}},
		{"Kaldi segments", map[string]string{"wav.scp": "r1 a.wav\nr2 cat |\nr3 w.ark:5", "segments": "s1 r1 0.5 1.25\ns2 r1 1 -1\ns3 r2 10 12\ns4 r2 0 -1\ns5 r1 3 4\ns6 r0 0 1\ns7 r1 2 1\ns8 r1\ns9 r3 0.5 1\n",
			"text": "s1 hi\n", "w.ark": "ARK"}, "", []string{
			`a.wav 0.750 "hi"`, "a.wav 1.000", "s3 2.000 given", "segments:4: s4: is a command, which is not run, and utt2dur does not have it (utils/data/get_utt2dur.sh makes it)",
			"a.wav: the row starts at 3.000 s, but the file ends at 2.000 s", `segments:6: wav.scp does not have its recording`, `segments:7: its start and end are not valid seconds`,
			"segments:8: has 2 fields instead of utterance, recording, start and end", "w.ark:5 0.500"}},
		{"durations alone", map[string]string{"utt2dur": "a 1.5\nb x\nc -1\n"}, "utt2dur", []string{"a 1.500 given", `utt2dur:2: has no duration of up to 1e+09 s after the name of its utterance`, `utt2dur:3: has no duration of up to 1e+09 s after the name of its utterance`}},
		{"Kaldi from its recipe", map[string]string{"data/train/wav.scp": "u1 a.wav\n"}, "data/train/wav.scp", []string{"a.wav 2.000"}},
		{"Lhotse cuts", map[string]string{"cuts.jsonl.gz": `{"id":"c1","start":0.5,"duration":1,"channel":0,"supervisions":[{"text":"a"},{"text":"b"}],` + recording + `},"type":"MonoCut"}
{"id":"c2","start":1.5,"duration":1,"channel":[0,1],` + recording + `},"type":"MultiCut"}
{"id":"c3","start":0,"duration":1.8,` + recording + `,"transforms":[{"name":"Speed","kwargs":{"factor":1.1}}]},"type":"MonoCut"}
{"id":"c4","start":0,"duration":1,"recording":{"sources":[{"type":"command","source":"rm -rf /"}],"sampling_rate":8000},"type":"MonoCut"}
{"id":"c5","start":0,"duration":1,"recording":{"sources":[{"type":"shar","source":""}],"sampling_rate":8000},"type":"MonoCut"}
{"id":"c6","tracks":[{"cut":{"duration":2,"supervisions":[{"text":"x"}],` + recording + `}},"offset":0},{"cut":{"duration":1},"offset":1.5}],"type":"MixedCut"}
{"id":"c7","duration":1,"type":"PaddingCut"}
{"id":"c8","start":-1,"duration":1,` + recording + `}}`}, "cuts.jsonl.gz", []string{
			`a.wav 1.000 "a b"`, "a.wav 0.500 of 1.000", "c3 1.800 given", "c4 1.000 given", `cuts.jsonl.gz:5: c5: its audio comes from "shar", which is not supported`,
			`c6 2.500 given "x"`, "cuts.jsonl.gz:7: c7: is padding without audio", "cuts.jsonl.gz:8: c8: cuts 1 s from -1 s on"}},
		{"Lhotse recordings", map[string]string{"recordings.jsonl": `{"id":"r","sources":[{"type":"file","channels":[0],"source":"a.wav"}],"sampling_rate":16000,"num_samples":1,"duration":9}
{"id":"u","sources":[{"type":"url","channels":[0],"source":"https://x/y.wav"}],"sampling_rate":16000,"duration":3}`}, "recordings.jsonl", []string{"a.wav 2.000", "u 3.000 given"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			files := map[string][]byte{"a.wav": wavOf(32000)}
			root := tree(t, files)
			for name, text := range c.files {
				path := filepath.Join(root, name)
				b := []byte(strings.ReplaceAll(text, "ROOT", root))
				switch {
				case text == "wav":
					b = wavOf(16000)
				case text == "ARK":
					b = append([]byte("u6 ()"), wavOf(16000)...)
				case strings.HasSuffix(name, ".gz"):
					b = gzipped(t, text)
				}
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
				require.NoError(t, os.WriteFile(path, b, 0o600))
			}
			r := Request{Manifest: filepath.Join(root, c.list), Texts: true}
			if c.list == "" {
				r = Request{Folder: root, Texts: true}
			}
			assert.Equal(t, c.want, told(scan(t, r), root))
		})
	}
}

func TestTextOfANamedField(t *testing.T) {
	root := tree(t, map[string][]byte{"a.wav": wavOf(1600), "m.jsonl": []byte(`{"path":"a.wav","text":"no","words":"yes"}`), "m.csv": []byte("path,text,Words\na.wav,no,yes\na.wav\n")})
	assert.Equal(t, []string{`a.wav 0.100 "yes"`}, told(scan(t, Request{Manifest: root + "/m.jsonl", Texts: true, TextField: "words"}), root))
	assert.Equal(t, []string{`a.wav 0.100 "yes"`, "a.wav 0.100"}, told(scan(t, Request{Manifest: root + "/m.csv", Texts: true, TextField: "words"}), root))
	assert.Nil(t, scan(t, Request{Manifest: root + "/m.csv"}).Texts)
}

func TestAFileIsMeasuredOnceForAllItsPieces(t *testing.T) {
	root := tree(t, map[string][]byte{"a.wav": wavOf(16000 * 3)})
	m := manifest{folder: root, files: map[string]*measuredFile{}}
	for i := range 3 {
		m.add(mention{path: root + "/a.wav", cut: true, offset: float64(i), seconds: 1})
	}
	require.NoError(t, m.resolvePaths())
	assert.Equal(t, 1.0, *measureOne(m.entries[0]).DurationS)
	require.NoError(t, os.Remove(root+"/a.wav"))
	for _, e := range m.entries {
		clip := measureOne(e)
		assert.Empty(t, clip.Error)
		assert.EqualValues(t, (44+96000)/3, clip.SizeBytes, "its share of the file")
	}
}

func TestDamagedPackedManifests(t *testing.T) {
	whole := gzipped(t, strings.Repeat(`{"path":"a.wav"}`+"\n", 50))
	broken := bytes.Clone(whole)
	broken[len(broken)-6] ^= 1
	for name, b := range map[string][]byte{"cut.jsonl.gz": whole[:len(whole)-12], "crc.jsonl.gz": broken, "plain.jsonl.gz": []byte(`{"path":"a.wav"}`), "empty.jsonl.gz": nil} {
		_, err := listed(t, name, string(b))
		isFault(t, err, fault.Corrupt, name)
	}
}

func FuzzKaldi(f *testing.F) {
	f.Add("r1 a.wav\nr2 x |\nr3 w.ark:9999999999999999999\n", "s1 r1 0.5 1\ns2 r1 NaN Inf\n", "s1 1e400\n")
	f.Fuzz(func(t *testing.T, scp, segments, durations string) {
		root := tree(t, map[string][]byte{"wav.scp": []byte(scp), "segments": []byte(segments), "utt2dur": []byte(durations), "a.wav": wavOf(16000)})
		for _, name := range []string{"wav.scp", "segments", "utt2dur"} {
			result, err := Scan(t.Context(), Request{Manifest: filepath.Join(root, name), AllowEmpty: true, Texts: true}, new(Progress))
			if err != nil {
				assert.NotEqual(t, fault.Internal, fault.From(err).Code)
				continue
			}
			for i := range result.Clips.Len() {
				c := result.Clips.At(i)
				assert.Equal(t, c.Error == "", c.DurationS != nil && *c.DurationS > 0 && *c.DurationS <= maxClipS, "%+v", c)
				assert.Equal(t, fault.Printable(c.Path), c.Path)
			}
		}
	})
}

func FuzzLhotse(f *testing.F) {
	f.Add(`{"id":"c","start":0.5,"duration":1,"recording":{"sources":[{"type":"file","source":"a.wav"}],"sampling_rate":16000}}`)
	f.Add(`{"id":"c","tracks":[{"cut":{"duration":2},"offset":0}]}`)
	f.Add(`{"audio_filepath":"a.wav","offset":0.5,"duration":1e308}`)
	f.Fuzz(func(t *testing.T, line string) {
		root := tree(t, map[string][]byte{"m.jsonl": []byte(line), "a.wav": wavOf(16000)})
		result, err := Scan(t.Context(), Request{Manifest: root + "/m.jsonl", AllowEmpty: true, Texts: true}, new(Progress))
		if err != nil {
			assert.NotEqual(t, fault.Internal, fault.From(err).Code)
			return
		}
		for i := range result.Clips.Len() {
			c := result.Clips.At(i)
			assert.Equal(t, c.Error == "", c.DurationS != nil && *c.DurationS > 0 && *c.DurationS <= maxClipS, "%+v", c)
		}
	})
}
