# %% [markdown]
# # Thai
#
# Thai is written without spaces. Headstart finds the words with a dictionary (pythainlp's newmm) wherever a tenth of
# the characters of a text are Thai; nothing has to be configured. The calls are made up; `docs/own-data.md` names
# public data, and `experiments/thai` has the settings for them.

# %%
import random

import pandas as pd

from components.data.formats.words import words_of
from headstart import fit

CALLS = {
    "ยอดเงิน": ["ขอทราบยอดเงินคงเหลือ", "อยากเช็คยอดเงินในบัญชี", "เหลือเงินเท่าไหร่", "ยอดค้างชำระเท่าไหร่"],
    "อินเทอร์เน็ต": ["อินเทอร์เน็ตช้ามาก", "เน็ตใช้ไม่ได้", "สมัครแพ็กเกจอินเทอร์เน็ต", "สัญญาณเน็ตไม่ดี"],
    "ยกเลิก": ["ต้องการยกเลิกบริการ", "ขอยกเลิกแพ็กเกจ", "ปิดเบอร์นี้ให้หน่อย", "ไม่ใช้แล้วขอยกเลิก"],
}
chance = random.Random(0)


def call(sentence: str) -> str:
    """A call with words around its request."""
    return f"{chance.choice(['สวัสดีครับ', 'สวัสดีค่ะ', ''])}{sentence}{chance.choice(['ครับ', 'ค่ะ', 'หน่อยครับ'])}"


def calls(rows: int) -> pd.DataFrame:
    """Rows of each label."""
    labelled = [(call(chance.choice(texts)), label) for label, texts in CALLS.items() for _ in range(rows)]
    return pd.DataFrame(labelled, columns=["text", "label"])


# %% [markdown]
# The words of a text, as models of words and taggers read them.

# %%
text = "ต้องการยกเลิกบริการอินเทอร์เน็ต"
words = [text[start:end] for start, end in words_of(text)]
print(words)

# %% [markdown]
# Train and predict. Language models take Thai as well: `fit(..., start=FOLDER)` with an encoder of your own
# ([own_language_model.py](own_language_model.py)) or a published multilingual one.

# %%
train, later = calls(8), calls(6)
model = fit(train, language="th", verbose=False)
print(model.report)
predicted = model.predict(later)
accuracy = (predicted["label"].to_numpy() == later["label"].to_numpy()).mean()
print(f"accuracy on other calls: {accuracy:.2f}")
