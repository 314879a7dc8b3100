package dataset

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

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
		{"a list", map[string]string{"l.txt": "a.wav\n\n b c.wav \nutt a.wav 1200 hello\nnope\n", "b c.wav": "wav"}, "l.txt", []string{"a.wav 2.000", "b c.wav 1.000", "a.wav 2.000", "nope: no such file"}},
		{"packed", map[string]string{"m.csv.gz": "path,sentence\na.wav,x\n"}, "m.csv.gz", []string{`a.wav 2.000 "x"`}},
		{"Kaldi", map[string]string{"wav.scp": "u1 a.wav\nu2\tsph2pipe -f wav /x.sph |\nu3 rm -rf ROOT |\nu4\nu5 -\nu6 w.ark:5\nu7 w.ark:6\nu8 gone.ark:5\n",
			"utt2dur": "u1 9\nu2 1.5\n", "text": "u1 one two\nu6 six", "w.ark": "ARK"}, "", []string{
			`a.wav 2.000 "one two"`, "u2 1.500 given", "wav.scp:3: u3: is a command, which is not run, and utt2dur does not have it (utils/data/get_utt2dur.sh makes it)",
			`wav.scp:4: has no path after the name of its recording`, `wav.scp:5: u5: standard input and output are not files`, `w.ark:5 1.000 "six"`, `w.ark:6: is not audio: its content is of no known format`, "gone.ark:5: no such file"}},
		{"Kaldi segments", map[string]string{"wav.scp": "r1 a.wav\nr2 cat |\nr3 w.ark:5", "segments": "s1 r1 0.5 1.25\ns2 r1 1 -1\ns3 r2 10 12\ns4 r2 0 -1\ns5 r1 3 4\ns6 r0 0 1\ns7 r1 2 1\ns8 r1\ns9 r3 0.5 1\n",
			"text": "s1 hi\n", "w.ark": "ARK"}, "", []string{
			`a.wav 0.750 "hi"`, "a.wav 1.000", "s3 2.000 given", "segments:4: s4: is a command, which is not run, and utt2dur does not have it (utils/data/get_utt2dur.sh makes it)",
			"a.wav: the row starts at 3.000 s, but the file ends at 2.000 s", `segments:6: wav.scp does not have its recording`, `segments:7: its start and end are not valid seconds`,
			"segments:8: has 2 fields instead of utterance, recording, start and end", "w.ark:5 0.500"}},
		{"durations alone", map[string]string{"utt2dur": "a 1.5\nb x\nc -1\n"}, "utt2dur", []string{"a 1.500 given", `utt2dur:2: has no duration of up to 1e+09 s behind the name of its utterance`, `utt2dur:3: has no duration of up to 1e+09 s behind the name of its utterance`}},
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
	m := manifest{folder: root, files: map[string]*measured{}}
	for i := range 3 {
		m.add(mention{path: root + "/a.wav", cut: true, offset: float64(i), seconds: 1})
	}
	require.NoError(t, m.settle())
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
			result, err := Scan(t.Context(), Request{Manifest: filepath.Join(root, name), Ending: Ending{AllowEmpty: true}, Texts: true}, nil)
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
		result, err := Scan(t.Context(), Request{Manifest: root + "/m.jsonl", Ending: Ending{AllowEmpty: true}, Texts: true}, nil)
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
