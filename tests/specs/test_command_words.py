"""The words of a command in which the name of a file may appear: none that a program reads as code."""

from __future__ import annotations

import shlex

import pytest

from wakeful.specs.command_words import find_code, takes_code

CODE = """
sh -c 'cat {path}'
/bin/bash -ec 'cat {path}'
bash -c -x 'cat {path}'
env X=1 zsh -c '{path}'
env -S '{stem} x'
timeout 5 sh -c 'cat {path}'
sudo -u x dash -c 'cat {path}'
find . -exec sh -c 'cat {path}' x ;
xargs sh -c 'cat {path}'
docker run img sh -c 'cat {path}'
busybox sh -c '{path}'
fish -c '{path}'
ssh host cat '{path}'
ssh '{stem}' ls
sshpass -p x ssh host rm '{path}'
eval '{path}'
su -c 'cat {path}' x
flock lock -c 'cat {path}'
awk '/{stem}/' x
awk -F , '/{stem}/' x
gawk -v x={stem} 1 f
awk -f prog.awk -v 'x={stem}' f
sed 's/x/{stem}/' f
sed -n -e '{stem}p' f
sed -ne '{stem}p' f
perl -e 'print "{path}"'
perl -ne print '{path}'
perl -pi -e s/a/b/ '{path}'
perl -M{stem} x.pl
python3 -c 'print("{path}")'
/usr/bin/python3.11 -c 'print("{path}")'
python -m '{stem}'
ruby -e 'puts "{stem}"'
node -e 'x("{stem}")'
node --eval={stem}
php -r 'echo "{stem}";'
lua -e 'print("{stem}")'
Rscript -e 'f("{path}")'
psql -c "select '{stem}'"
psql -v x={stem} -f q.sql
psql '{stem}'
sqlite3 x.db "select '{stem}'"
sqlite3 -cmd '.read {path}' x.db
mysql -e "select '{stem}'"
jq '.{stem}' f.json
jq -r '.[] | {stem}' f.json
yq '.{stem}' f.yaml
watch cat '{path}'
parallel cat '{path}'
tmux new-session 'cat {path}'
make '{stem}'
make 'X={stem}'
git -c x={stem} log
git log '{stem}'
git clone --upload-pack={path} x
rsync -e {stem} x y
scp host:'{path}' x
scp '{stem}' x
tar -I '{stem}' -xf x
m4 -DX={stem} f
vim '+{stem}' f
mytool -o{path}
mytool -{stem}
""".strip().splitlines()

DATA = """
cp '{path}' 'answers/{stem}.txt'
python3 answer.py '{path}' 'answers/{stem}.txt'
python3 -c 'import sys' '{path}'
sh run.sh '{path}'
sh -c 'cat "$1"' x '{path}'
bash '{path}'
'{path}'
awk 1 '{path}'
awk -F , '{{print $1}}' '{path}'
awk -f prog.awk '{path}'
sed -n 1p '{path}'
sed -e 1p -e 2p '{path}'
sed -f x.sed '{path}'
perl x.pl '{path}'
perl -e 'print @ARGV' '{path}'
jq .x '{path}'
jq -n --arg name '{stem}' '$name'
jq --arg a '{stem}' --arg b '{path}' '$a' f.json
sqlite3 '{path}' 'select 1'
psql -f '{path}'
git log --oneline -- '{path}'
rsync -a '{path}' host:dir/
scp 'out/{stem}.txt' host:dir/
tar -czf 'out/{stem}.tgz' '{path}'
npm run watch '{path}'
mytool --kind node '{path}'
mytool --file={path} --name={stem}
mytool -I./{stem}
find '{path}' -name '*.md'
""".strip().splitlines()


def judge(line: str) -> list[tuple[int, str]]:
    words = shlex.split(line)
    return list(find_code(words, [index for index, word in enumerate(words) if "{path}" in word or "{stem}" in word]))


@pytest.mark.parametrize("line", CODE)
def test_a_name_that_a_program_takes_for_code_is_found(line: str) -> None:
    assert len(judge(line)) == 1, judge(line)


@pytest.mark.parametrize("line", DATA)
def test_a_name_that_is_data_is_left_alone(line: str) -> None:
    assert judge(line) == []


@pytest.mark.parametrize(
    "name", ["BASH_ENV", "LD_PRELOAD", "PATH", "PYTHONSTARTUP", "GIT_SSH_COMMAND", "NODE_OPTIONS", "PERL5OPT", "ENV"]
)
def test_a_variable_that_is_code_is_known(name: str) -> None:
    assert takes_code(name) and not takes_code(f"MY_{name}") and not takes_code("FILE")
