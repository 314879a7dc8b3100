"""Tables, letters and recordings as people have them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import soundfile
from material import noise
from outcome import Outcome, hearing, situation

from asrconfig_go import check_labels, create_optimal_config, scan_audio
from asrconfig_go.audio import load_audio
from asrconfig_go.predict import ModelProfile
from asrconfig_go.recipe import build_processor, clean_text, load_speech

WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
Texts = dict[str, Any]


def clips(folder: Path, count: int = 12) -> list[str]:
    """Clips of unlike lengths, so that each is known by its own."""
    return [noise(folder / f"c{number}.wav", 0.5 + number / 10, number) for number in range(count)]


def read(source: Any) -> dict[str, Any]:
    """What each entry point makes of a source: milliseconds of its clips, with texts where it reads them."""
    scanned = [round(1000 * s) for s in scan_audio(source, progress=False).durations if not math.isnan(s)]
    speech = load_speech(source, evaluation_share=0, progress=False)
    lengths = [round(n / 16) for n in speech.train["length"]]
    model = ModelProfile(total_parameters=10**8)
    _, manager = create_optimal_config(source, model, gpu="T4", verbose=False)
    report = check_labels(source, tokenizer=lambda text: list(str(text)), progress=False)
    return {
        "scan": scanned,
        "recipe": lengths,
        "plan": manager.dataset.measured_count,
        "texts": list(speech.train["text"]),
        "checked": report.checked,
        "letters": round(report.mean_labels * report.checked),
    }


def expect(source: Any, count: int, texts: list[str | None]) -> Outcome:
    """``survived`` where all entry points read these texts, of the first clips; else the error, or what differs."""
    with hearing() as heard:
        found = read(source)
    if heard.error is not None:
        return Outcome("unnamed", " ".join(heard.text.split())[-300:])
    lengths = [500 + 100 * number for number in range(count)]
    said = [text for text in texts if text is not None]
    wanted = {
        "scan": lengths, "recipe": lengths, "plan": count, "texts": texts, "checked": len(said),
        "letters": sum(map(len, said)),
    }  # fmt: skip
    wrong = {name: found[name] for name in wanted if found[name] != wanted[name]}
    return Outcome("silent", f"differs: {wrong}") if wrong else Outcome("survived", f"{count} clips, {texts[:3]}")


def table(folder: Path, name: str, head: str, row: str, texts: list[str], encoding: str = "utf-8") -> str:
    """A table with a row for each text: ``row`` has {file} and {text}."""
    files = [Path(path).name for path in clips(folder, len(texts))]
    lines = [row.format(file=file, text=text) for file, text in zip(files, texts, strict=True)]
    path = folder / name
    path.write_bytes("\n".join([head, *lines, ""]).encode(encoding))
    return str(path)


@situation
def a_quote_that_is_never_closed(folder: Path) -> Outcome:
    """A text in a .csv begins with a quotation mark"""
    texts = [*WORDS[:3], '"four', *WORDS[4:]]
    return expect(table(folder, "m.csv", "path,text", "{file},{text}", texts), 12, list(texts))


@situation
def quotes_over_several_rows(folder: Path) -> Outcome:
    """Speech in quotation marks goes over several rows of a .csv"""
    texts = [*WORDS[:3], '"four', "five", 'six"', '"seven', *WORDS[7:]]
    return expect(table(folder, "m.csv", "path,text", "{file},{text}", texts), 12, list(texts))


@situation
def a_quote_in_common_voice(folder: Path) -> Outcome:
    """A sentence in a .tsv is in quotation marks, or begins with one"""
    texts = ['"one', '"Two."', "three", '"four"']
    return expect(table(folder, "m.tsv", "path\tsentence", "{file}\t{text}", texts), 4, list(texts))


@situation
def quoted_line_ends(folder: Path) -> Outcome:
    """A quoted text in a .csv has line ends and doubled quotation marks"""
    path = table(folder, "m.csv", "path,text", '{file},"{text}"', ['one\n""uno"", due', "two"])
    return expect(path, 2, ['one\n"uno", due', "two"])


@situation
def semicolons(folder: Path) -> Outcome:
    """A .csv from a spreadsheet in Europe: semicolons, a byte order mark, CRLF"""
    path = table(folder, "m.csv", "\ufeffpath;text\r", "{file};{text}\r", list(WORDS[:4]))
    return expect(path, 4, list(WORDS[:4]))


@situation
def bars_and_names_without_endings(folder: Path) -> Outcome:
    """A .csv with bars, whose names lack .wav"""
    path = table(folder, "m.csv", "file|text", "{file}|{text}", list(WORDS[:4]))
    Path(path).write_text(Path(path).read_text().replace(".wav", ""))
    return expect(path, 4, list(WORDS[:4]))


@situation
def audiofolder(folder: Path) -> Outcome:
    """metadata.csv of an audio folder: file_name, transcription"""
    texts = list(WORDS[:4])
    table(folder, "metadata.csv", "file_name,transcription", "{file},{text}", texts)
    return expect(str(folder), 4, list(texts))


@situation
def audiofolder_in_json(folder: Path) -> Outcome:
    """metadata.jsonl of an audio folder, alone"""
    row = '{{"file_name": "{file}", "transcription": "{text}"}}'
    files, texts = [Path(path).name for path in clips(folder, 4)], list(WORDS[:4])
    path = folder / "metadata.jsonl"
    path.write_text("".join(row.format(file=f, text=t) + "\n" for f, t in zip(files, texts, strict=True)))
    return expect(str(path), 4, list(texts))


@situation
def numbers_in_json(folder: Path) -> Outcome:
    """Transcripts in a .jsonl are numbers"""
    files = [Path(path).name for path in clips(folder, 3)]
    path = folder / "m.jsonl"
    path.write_text("".join(f'{{"path": "{file}", "text": {1984 + i}}}\n' for i, file in enumerate(files)))
    return expect(str(path), 3, ["1984", "1985", "1986"])


@situation
def numbers_in_a_dataset(folder: Path) -> Outcome:
    """A dataset's column of transcripts is of whole numbers"""
    return expect(datasets.Dataset.from_dict({"path": clips(folder, 3), "text": [1984, 7, 8]}), 3, ["1984", "7", "8"])


@situation
def numbers_with_a_gap(folder: Path) -> Outcome:
    """pandas makes floats of numbers as transcripts, as one is missing"""
    import pandas

    frame = pandas.DataFrame({"path": clips(folder, 3), "text": [1984, None, 8]})
    return expect(datasets.Dataset.from_pandas(frame), 3, ["1984", None, "8"])


@situation
def large_strings(folder: Path) -> Outcome:
    """A .csv read by datasets has large strings"""
    rows = "".join(f"{path},{word}\n" for path, word in zip(clips(folder, 4), WORDS, strict=False))
    (folder / "m.csv").write_text(f"audio,text\n{rows}")
    dataset = datasets.load_dataset("csv", data_files=str(folder / "m.csv"), split="train", cache_dir=str(folder / "k"))
    return expect(dataset, 4, list(WORDS[:4]))


@situation
def file_name_in_a_dataset(folder: Path) -> Outcome:
    """A dataset with file_name and Transcription, in any case"""
    columns = {"file_name": clips(folder, 4), "Transcription": list(WORDS[:4])}
    return expect(datasets.Dataset.from_dict(columns), 4, list(WORDS[:4]))


@situation
def commas_in_unquoted_texts(folder: Path) -> Outcome:
    """Texts of a .csv have commas and no quotation marks"""
    texts = ["one, uno", "two", "three, drei, tre"]
    return expect(table(folder, "m.csv", "path,text", "{file},{text}", texts), 3, list(texts))


@situation
def commas_that_cannot_be_told(folder: Path) -> Outcome:
    """A text with a comma stands before another column"""
    path = table(folder, "m.csv", "path,text,speaker", "{file},{text},ann", ["one", "two, due", "three"])
    with hearing() as heard:
        print(*load_speech(path, evaluation_share=0, progress=False).notes)
    return heard.named("m.csv:3", "quotation marks")


@situation
def windows_1252(folder: Path) -> Outcome:
    """A .csv in Windows-1252"""
    path = table(folder, "m.csv", "path,text", "{file},{text}", ["one", "café"], "cp1252")
    outcomes = []
    for entry in (scan_audio, check_labels, load_speech):
        with hearing() as heard:
            entry(path, progress=False)
        outcomes.append(heard.named("m.csv", "line 3", "UTF-8"))
    return min(outcomes, key=lambda each: ("silent", "unnamed", "named").index(each.ending))


@situation
def turkish(folder: Path) -> Outcome:
    """Turkish transcripts in capitals are made lower case"""
    rows = datasets.Dataset.from_dict({"audio": clips(folder, 2), "text": ["IĞDIR", "İZMİR"]})
    with hearing() as heard:
        data = load_speech(rows, evaluation_share=0, progress=False, language="tr").clean()
        letters = set(build_processor(data.train["text"], "tiny-wav2vec2").tokenizer.get_vocab())
    if heard.error is not None:
        return heard.named("language", "tr")
    good = list(data.train["text"]) == ["ığdır", "izmir"] and "\u0307" not in letters
    return Outcome("survived" if good else "silent", f"{list(data.train['text'])}, {sorted(letters)}")


@situation
def dots_of_casing(folder: Path) -> Outcome:
    """Lower case of İ leaves a combining dot, where no language is given"""
    texts = ["İzmir", "i\u0307yi", "Izgara"]
    rows = datasets.Dataset.from_dict({"audio": clips(folder, 3), "text": texts})
    with hearing() as heard:
        data = load_speech(rows, evaluation_share=0, progress=False).clean()
        print(*data.notes, sep="\n")
    if any("\u0307" in text for text in data.train["text"]):
        return Outcome("silent", ascii(list(data.train["text"])))
    return heard.named("2 transcripts", "Turkish", "language")


@situation
def final_sigma(folder: Path) -> Outcome:
    """Greek, German and Lithuanian keep their letters in lower case"""
    found = [clean_text("ΟΔΥΣΣΕΥΣ"), clean_text("STRAẞE"), clean_text("ẾCH")]
    good = found == ["οδυσσευς", "straße", "ếch"]
    return Outcome("survived" if good else "silent", str(found))


@situation
def stereo_that_cancels(folder: Path) -> Outcome:
    """The channels of stereo recordings cancel each other"""
    rows = []
    for number in range(3):
        sound = np.random.default_rng(number).normal(0, 0.1, 16_000)
        soundfile.write(folder / f"{number}.wav", np.stack([sound, -sound], 1), 16_000)
        rows.append({"audio": str(folder / f"{number}.wav"), "text": WORDS[number]})
    if abs(load_audio(rows[0]["audio"])).max() < 0.01:
        return Outcome("silent", "the clip is silent")
    with hearing() as heard:
        print(*load_speech(datasets.Dataset.from_list(rows), evaluation_share=0, progress=False).notes, sep="\n")
    return heard.named("3 clips", "cancel", "0.wav")


@situation
def silent_clips(folder: Path) -> Outcome:
    """Nothing is heard in some clips"""
    paths = clips(folder, 4)
    soundfile.write(paths[1], np.zeros(16_000), 16_000)
    soundfile.write(paths[3], np.random.default_rng(0).integers(-1, 2, 16_000).astype("int16"), 16_000)
    rows = datasets.Dataset.from_dict({"audio": paths, "text": list(WORDS[:4])})
    with hearing() as heard:
        print(*load_speech(rows, evaluation_share=0, progress=False).notes, sep="\n")
    return heard.named("2 clips", "row 1", "row 3", "c1.wav")


@situation
def healthy_stereo(folder: Path) -> Outcome:
    """Other stereo recordings are mixed as before"""
    left, right = (np.random.default_rng(seed).normal(0, 0.1, 16_000).astype("float32") for seed in (0, 1))
    for name, other in (("alike", left), ("unlike", right), ("mute", 0 * left), ("half", -left / 2)):
        channels = np.stack([left, other], 1)
        soundfile.write(folder / f"{name}.wav", channels, 16_000, subtype="FLOAT")
        if not np.array_equal(load_audio(folder / f"{name}.wav"), channels.mean(1)):
            return Outcome("silent", f"{name} is mixed in another way")
    return Outcome("survived", "bit for bit")
