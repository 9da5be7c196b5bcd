"""The .proto files name the packages of generated code in other languages."""

import shutil
import subprocess
from pathlib import Path

import pytest

PROTOS = Path(__file__).parents[3] / "protos"

# Of each language: the flag of protoc, a file that protoc writes, and a part of the file.
LANGUAGES = {
    "C#": ("csharp_out", "Translation.cs", "namespace Translane.V1 {"),
    "Java": ("java_out", "com/translane/v1/TranslateRequest.java", "package com.translane.v1;"),
    "Kotlin": ("kotlin_out", "com/translane/v1/TranslateRequestKt.kt", "package com.translane.v1;"),
    "Objective-C": ("objc_out", "translane/v1/Translation.pbobjc.h", "@interface TLNTranslateRequest :"),
    "PHP": ("php_out", "Translane/V1/TranslateRequest.php", "namespace Translane\\V1;"),
    "Ruby": ("ruby_out", "translane/v1/translation_pb.rb", "module Translane\n  module V1\n"),
}


@pytest.mark.skipif(not shutil.which("protoc"), reason="protoc is not installed")
@pytest.mark.parametrize("language", LANGUAGES)
def test_names(language, tmp_path):
    flag, name, part = LANGUAGES[language]
    files = ["translane/v1/translation.proto", "translane/v1/models.proto"]
    subprocess.run(["protoc", "-I", PROTOS, f"--{flag}={tmp_path}", *files], check=True, timeout=60)
    assert part in (tmp_path / name).read_text()
